"""Tables: CSV, TSV and Parquet with numbers, categories, times and gaps; what was learnt is data."""

from noisegate.data.tables.encoding import TableReader
from noisegate.data.tables.loading import from_frame, load_table, test_split
from noisegate.data.tables.reading import TABLE_SUFFIXES, read_table

__all__ = ["TABLE_SUFFIXES", "TableReader", "from_frame", "load_table", "read_table", "test_split"]
