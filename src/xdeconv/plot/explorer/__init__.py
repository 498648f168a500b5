"""One page of HTML that slices a mixture in a browser, without a server."""
