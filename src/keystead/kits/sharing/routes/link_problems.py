"""What the error page of a link says, by the code of the refusal."""

from typing import Final, NamedTuple

from keystead.catalogue import message


class LinkProblem(NamedTuple):
    """Why a link does not open, and what to do."""

    heading: str
    advice: str


_BROKEN: Final = message(
    "Part of it is missing, as happens when a long link is copied or wrapped. Paste the complete link here, or ask "
    "the sender to send it again."
)
LINK_PROBLEMS: Final = {
    "TOKEN_REQUIRED": LinkProblem(message("Open a link"), message("Paste the link that you received.")),
    "TOKEN_NOT_FOUND": LinkProblem(
        message("Link not found"),
        message(
            "It was ended, expired long ago, or is misspelled. Paste the complete link here, or ask the sender for a "
            "new one."
        ),
    ),
    "INVALID_FORMAT": LinkProblem(
        message("This link is incomplete"),
        _BROKEN,
    ),
    "INVALID_BYTES": LinkProblem(
        message("This link is incomplete"),
        _BROKEN,
    ),
    "INVALID_PAYLOAD": LinkProblem(
        message("This link was altered"),
        message("It was changed and no longer works. Paste the link that you received, or ask for a new one."),
    ),
    "EXPIRED": LinkProblem(message("This link has expired"), message("Ask the sender for a new link.")),
    "USED_UP": LinkProblem(
        message("This link is used up"), message("It has reached its download limit. Ask the sender for a new link.")
    ),
    "REVOKED": LinkProblem(
        message("This link was ended"),
        message("The sender has ended the link, and the file is deleted. Ask the sender for a new link."),
    ),
    "HOST_NOT_ALLOWED": LinkProblem(
        message("This link is not allowed"),
        message("The file is on a host that this site does not allow. Ask the sender for a new link."),
    ),
    "NOT_READY": LinkProblem(
        message("This file is not ready yet"), message("It is still being uploaded. Try again in a moment.")
    ),
    "TOO_MANY_GUESSES": LinkProblem(
        message("Too many wrong passwords"),
        message("This link is locked for an hour. Ask the sender for the password, and try again then."),
    ),
    "RATE_LIMITED": LinkProblem(
        message("Too many requests"), message("Too many requests from your network. Wait a minute, then try again.")
    ),
    "FILES_UNAVAILABLE": LinkProblem(
        message("Please try again in a moment"), message("The file storage cannot be reached. No download was counted.")
    ),
    "FILE_GONE": LinkProblem(
        message("The file is gone"),
        message("The file of this link was removed. No download was counted. Ask the sender for a new link."),
    ),
}
WRONG_PASSWORD: Final = {
    "PASSWORD_WRONG": message("Wrong password. Upper and lower case and spaces matter."),
    "PASSWORD_REQUIRED": message("This link requires a password."),
}
