"""Tracking of studies: journals, MLflow and the progress display. Importing this package does not import MLflow."""

from fedrela_bench.tracking.state import ui_address
from fedrela_bench.tracking.ui import tracking_uri, ui_command

__all__ = ["tracking_uri", "ui_address", "ui_command"]
