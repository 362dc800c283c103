module repot.dev/tests/upload

go 1.26.1
