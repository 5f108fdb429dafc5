"""What is said where there is nothing: a page to a browser, JSON to a program."""

from fastapi import Request
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response

from keystead.server.templates import TEMPLATES


async def answer_not_found(request: Request, error: Exception) -> Response:
    """The handler for status 404. The path is not repeated on the page, so nobody can put words into its mouth."""
    if not isinstance(error, HTTPException):
        raise error
    if "text/html" in request.headers.get("accept", ""):
        answer: Response = HTMLResponse(TEMPLATES.get_template("not_found.html").render(), error.status_code)
    else:
        answer = await http_exception_handler(request, error)
    answer.headers["vary"] = "accept"
    return answer
