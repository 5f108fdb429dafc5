"""Admission: check a bearer token and load its user, in one round trip."""

from keystead.parts.admission.admission import Admission, Admitted

__all__ = ["Admission", "Admitted"]
