#!/bin/sh
# Rewrites what the program generates in the Markdown pages: tools/update_docs.sh [PROGRAM]
#
# docs/reference/cli.md is generated as a whole. In other pages a block begins with a line
#   <!-- braid --markdown TOPIC -->
# and ends with a line <!-- end -->; the lines between them are replaced by the output of that command.
set -eu
program=$(realpath "${1:-build/braid}")
cd "$(dirname "$0")/.."
new=$(mktemp)
block=$(mktemp)
trap 'rm -f "$new" "$block"' EXIT

# Keeps the time stamp of a page that does not change.
put() {
  if cmp -s "$new" "$1"; then return; fi
  cat "$new" > "$1"
  echo "updated $1"
}

"$program" --markdown cli > "$new"
put docs/reference/cli.md

grep -rl --include='*.md' '^<!-- braid --markdown ' README.md docs | while IFS= read -r page; do
  inside=no
  : > "$new"
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in
      '<!-- braid --markdown '*' -->')
        [ $inside = no ] || { echo "$page: a block begins inside another: $line" >&2; exit 1; }
        inside=yes
        topic=${line#'<!-- braid --markdown '}
        "$program" --markdown "${topic%' -->'}" > "$block"
        { printf '%s\n\n' "$line"; cat "$block"; echo; } >> "$new"
        ;;
      '<!-- end -->')
        inside=no
        printf '%s\n' "$line" >> "$new"
        ;;
      *) [ $inside = yes ] || printf '%s\n' "$line" >> "$new" ;;
    esac
  done < "$page"
  [ $inside = no ] || { echo "$page: a block has no <!-- end -->" >&2; exit 1; }
  put "$page"
done
