"""RLVR-World (arXiv 2505.13934): one pipeline, `pipeline.py`; each modality fills in a `Task`."""
