"""Tables of any kind: files and frames become numbers, and what was learnt on the way is plain data."""

from noisegate.data.tables.columns import Met
from noisegate.data.tables.encoding import TableReader
from noisegate.data.tables.frames import Frame, as_frame, is_frame
from noisegate.data.tables.loading import from_frame, load_table, read_labels, test_split
from noisegate.data.tables.reading import TABLE_SUFFIXES, read_frame, read_table

__all__ = [
    "TABLE_SUFFIXES",
    "Frame",
    "Met",
    "TableReader",
    "as_frame",
    "from_frame",
    "is_frame",
    "load_table",
    "read_frame",
    "read_labels",
    "read_table",
    "test_split",
]
