complete -o default -o bashdefault -C /usr/bin/notyet notyet
