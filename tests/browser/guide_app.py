"""An application that serves nothing but the guide, from the folder `built` of `TEST_OPTIONS`."""

import json
import os
from pathlib import Path

from fastapi import FastAPI

from keystead.server.guide_pages import add_guide
from keystead.server.request_layer import RequestLayer, RequestLimits


def make() -> FastAPI:
    app = FastAPI(redirect_slashes=False)
    add_guide(app, Path(json.loads(os.environ["TEST_OPTIONS"])["built"]))
    app.add_middleware(RequestLayer, limits=RequestLimits(30, 1000))
    return app
