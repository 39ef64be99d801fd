# Shows a job and new bytes of its output: poll JOB FILE OFFSET LOOK
# In base64, so that bytes can be counted: after a broken connection, reading resumes at the same offset.
if [ -n "$4" ]; then
    # A controller that does not answer must not delay the output.
    timeout 8 scontrol show job -o "$1" 2>&1 | sed 's/^/job /'
fi
if [ -n "$2" ] && [ -e "$2" ]; then
    echo there
    tail -c "+$(($3 + 1))" -- "$2" | head -c 1000000 | base64 | sed 's/^/data /'
fi
exit 0
