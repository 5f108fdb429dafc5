"""The doctor: reads a live store, finds what is not as the key document says, and repairs it in small safe steps."""

from keystead.schema.doctor.examination import examine
from keystead.schema.doctor.quarantine import Quarantined, QuarantineKeys, restore
from keystead.schema.doctor.report import Found, Progress, Report

__all__ = ["Found", "Progress", "QuarantineKeys", "Quarantined", "Report", "examine", "restore"]
