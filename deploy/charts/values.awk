# Prints the values of a chart as a table of Markdown. They come from values.yaml, whose comments say what they mean: the
# comment above a key belongs to it. Of values over several lines the table has only the name.

BEGIN {
  print "| value | default | meaning |"
  print "|---|---|---|"
}

function indent(line) { match(line, /^ */); return RLENGTH }

function cell(text) { gsub(/\|/, "\\|", text); return text }

function row(path, value, meaning) {
  printf "| `%s` | %s | %s |\n", path, value == "" ? "see values.yaml" : "`" value "`", cell(meaning)
}

function flush() {
  if (pending != "") row(pending, "", pending_meaning)
  pending = ""
}

/^ *#/ {
  line = $0
  sub(/^ *# ?/, "", line)
  comment = comment == "" ? line : comment " " line
  next
}

/^$/ { comment = ""; next }

# Lines of a value over several lines.
pending != "" && (indent($0) > pending_indent || /^ *- /) { comment = ""; is_block = 1; next }

{
  if (is_block) flush()
  is_block = 0
  pending = ""
  depth = indent($0)
  while (count > 0 && depths[count] >= depth) count--
  key = $0
  sub(/^ */, "", key)
  value = key
  sub(/:.*/, "", key)
  sub(/^[^:]*: ?/, "", value)
  path = key
  for (i = count; i > 0; i--) path = keys[i] "." path
  if (value == "" && key !~ /^(resources|topologySpreadConstraints)$/) {
    # A group of values.
    count++; keys[count] = key; depths[count] = depth
  } else if (value == "") {
    pending = path; pending_meaning = comment; pending_indent = depth
  } else {
    row(path, value, comment)
  }
  comment = ""
}

END { flush() }
