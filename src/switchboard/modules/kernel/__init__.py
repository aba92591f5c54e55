"""Opens modules in a worker, binds their tools and runs their chores; one that misbehaves harms no other."""
