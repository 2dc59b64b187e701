"""Learned models of video: tokenizers, transformers, perceptual distance, small networks that read single frames."""
