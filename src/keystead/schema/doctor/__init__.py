"""The doctor: reads a live store, finds what is not as the key document says, and repairs it in small safe steps."""

from keystead.schema.doctor.examination import examine, repair
from keystead.schema.doctor.quarantine import Quarantined, QuarantineKeys, restore
from keystead.schema.doctor.report import Excess, Found, Progress, Report

__all__ = ["Excess", "Found", "Progress", "QuarantineKeys", "Quarantined", "Report", "examine", "repair", "restore"]
