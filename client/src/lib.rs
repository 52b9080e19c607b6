//! Penstock's client library and pftp, the parallel FTP session.
