import subprocess, sys
p = "/work/main/rlm/service.py"
wt = open(p).read()
old = "            self.delete_held_back,\n        )  # fmt: skip\n        scanner"
assert wt.count(old) == 1
open(p, "w").write(wt.replace(old, "            self.delete_held_back, self._audit,\n        )  # fmt: skip\n        scanner"))
head = subprocess.check_output(["git","show","HEAD:rlm/service.py"], text=True, cwd="/work/main")
def sub(s, a, b):
    assert s.count(a) == 1, a
    return s.replace(a, b)
head = sub(head, "from rlm.topic_filter import TopicFilter\n", "from rlm.topic_deletion import TopicDeletion\nfrom rlm.topic_filter import TopicFilter\n")
head = sub(head, "        scanner = Scanner(\n", """        self._topic_deletion = TopicDeletion(
            manager, proposals, self._clean_ups, identity, self._limits, ambient,
            self.delete_held_back, self._audit,
        )  # fmt: skip
        scanner = Scanner(
""")
head = sub(head, '            asyncio.create_task(self._clock_loop(), name="compare clocks"),\n', '            asyncio.create_task(self._clock_loop(), name="compare clocks"),\n            asyncio.create_task(self._topic_deletion.run(), name="delete topics"),\n')
open("/tmp/service_mine.py","w").write(head)
