"""The Ray Serve application: HTTP captions, scores and metrics, and captioning of folders."""
