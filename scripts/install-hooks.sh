#!/usr/bin/env bash
# Installs a local pre-commit hook that runs `make check`. `git commit --no-verify` passes it by.
set -euo pipefail

cd "$(git rev-parse --show-toplevel)"
# The folder is the repository's own, or wherever core.hooksPath says; worktrees share it.
folder="$(git rev-parse --git-path hooks)"
hook="$folder/pre-commit"
mark="# installed by make hooks"

if [ -e "$hook" ] && ! grep -qxF "$mark" "$hook"; then
    echo "$hook exists and is not ours: left alone. Add 'make check' to it, or remove it first." >&2
    exit 1
fi

mkdir -p "$folder"
cat >"$hook" <<HOOK
#!/usr/bin/env bash
$mark
# It reads the files as they are, what is not added too.
set -e
cd "\$(git rev-parse --show-toplevel)"
# Git names its index here, which a git of a nested checkout would take for its own.
unset \$(git rev-parse --local-env-vars)
exec make check
HOOK
chmod +x "$hook"
echo "$hook runs make check before every commit"
