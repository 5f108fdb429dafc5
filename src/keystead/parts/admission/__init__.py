"""Admission, as a part: whether a bearer token counts, and whose it is, in one round trip."""

from keystead.parts.admission.admission import Admission, Admitted

__all__ = ["Admission", "Admitted"]
