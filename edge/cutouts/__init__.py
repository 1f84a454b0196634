"""Background removal at the edge: a picture in, its subject cut out.

What is subject, and which colour its edges have, is the matting service's affair; here is HTTP.
"""
