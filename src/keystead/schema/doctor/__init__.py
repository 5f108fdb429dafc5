"""The doctor: finds contradictions between a live store and its key document, and repairs them in safe steps."""

from keystead.schema.doctor.examination import examine, repair
from keystead.schema.doctor.report import Excess, Found, Progress, Report
from keystead.schema.quarantine import Quarantined, QuarantineKeys, restore

__all__ = ["Excess", "Found", "Progress", "QuarantineKeys", "Quarantined", "Report", "examine", "repair", "restore"]
