"""Admission, as a part: whether a bearer token counts, and whose it is, in one round trip."""

from keystead.parts.admission.admission import Admission, Admitted
from keystead.parts.admission.bearer import Challenge, admit

__all__ = ["Admission", "Admitted", "Challenge", "admit"]
