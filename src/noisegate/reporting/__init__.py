"""Reports as Markdown and HTML, and the plots in them."""
