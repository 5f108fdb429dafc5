"""Admission: check a bearer token and load its user, in one round trip."""

from keystead.parts.admission.admission import Admission, Admitted
from keystead.parts.admission.bearer import Challenge, admit

__all__ = ["Admission", "Admitted", "Challenge", "admit"]
