"""The text browser: HTML, styles, forms and the accessibility tree in this process, without scripts."""
