"""The admin port: the verbs over HTTP, for our own programs, browsers and watchers. `server` is its
process, `app` what it answers, `client` how a Python program calls it."""
