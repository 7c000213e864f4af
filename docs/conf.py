"""Settings of the documentation. `make docs` builds it; nothing here needs the network."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import generated
import matplotlib

import noisegate

matplotlib.use("agg")

project = "noisegate"
author = "the noisegate authors"
copyright = "the noisegate authors, Apache-2.0"
version = release = noisegate.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_ext", "_inventories", "methods/_facts", "_numbers.md", "README.md"]
default_role = "code"
nitpicky = False

# -- Markdown
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

# -- docstrings
autosummary_generate = False
autodoc_typehints = "none"  # the docstrings tell the types, in words
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_default_options = {
    "members": True,
    "exclude-members": "set_fit_request, set_predict_request, set_score_request, get_metadata_routing",
}
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

# -- references to other projects, from the inventories that docs/_inventories/write.py writes
intersphinx_disabled_reftypes = ["std:doc", "std:label"]
intersphinx_mapping = {
    name: (address, str(HERE / "_inventories" / f"{name}.inv"))
    for name, address in {
        "python": "https://docs.python.org/3/",
        "numpy": "https://numpy.org/doc/stable/",
        "torch": "https://docs.pytorch.org/docs/stable/",
        "sklearn": "https://scikit-learn.org/stable/",
        "pandas": "https://pandas.pydata.org/docs/",
    }.items()
}

# -- mathematics: MathJax 3.2.2 lies in _static/mathjax, so pages can be read without a network
mathjax_path = "mathjax/startup.js"
mathjax3_config = {
    "loader": {"load": ["core", "input/tex", "output/chtml"]},
}

# -- the gallery: the scripts of examples/gallery are run while the documentation is built
sphinx_gallery_conf = {
    "examples_dirs": ["../examples/gallery"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "min_reported_time": 1,
    "matplotlib_animations": False,
    "show_memory": False,
    "show_signature": False,
    "plot_gallery": "True",
    "write_computation_times": False,
    "copyfile_regex": r"$^",
}
# A type such as "mapping" in a docstring is a word, not a reference; two attributes bear that name.
suppress_warnings = ["config.cache", "ref.python"]

# -- the pages
html_theme = "furo"
html_title = f"noisegate {version}"
html_static_path = ["_static"]
html_css_files = ["noisegate.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5f8a", "color-brand-content": "#0b5f8a"},
    "dark_css_variables": {"color-brand-primary": "#6bb8e0", "color-brand-content": "#6bb8e0"},
}

generated.write(HERE)


def setup(app):
    """Adapt what comes from outside docs/: included files, and docstrings in plain text."""
    app.connect("include-read", generated.include_read)
    app.connect("autodoc-process-docstring", generated.plain_docstring, priority=100)
    app.connect("autodoc-skip-member", generated.skip_member)
