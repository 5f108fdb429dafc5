"""A Flask application for gunicorn: each request adds a key of its own to the session of its browser."""

import os

from flask import Flask, session

from keystead.integrations.flask import KeysteadSessions

app = Flask(__name__)
sessions = KeysteadSessions(app, os.environ["BASKETS_STORE"])
sessions.end_sessions("nobody")  # the store is used before the fork


@app.post("/sign-in/<user>")
def sign_in(user: str) -> str:
    session["_user_id"] = user
    return user


@app.post("/put/<name>")
def put(name: str) -> str:
    session[name] = session["_user_id"]
    return str(os.getpid())


@app.get("/")
def basket() -> dict[str, str]:
    return dict(session)
