// One JSON object a line: {"id", "ics", "since", "until"} (seconds). Out: the starts and ends that ical.js finds.
const ICAL = require("ical.js");
const rl = require("readline").createInterface({ input: process.stdin });
rl.on("line", (line) => {
  const job = JSON.parse(line);
  const found = [];
  let error = "";
  try {
    const root = new ICAL.Component(ICAL.parse(job.ics));
    for (const zone of root.getAllSubcomponents("vtimezone"))
      if (!ICAL.TimezoneService.has(zone.getFirstPropertyValue("tzid"))) ICAL.TimezoneService.register(zone);
    const all = root.getAllSubcomponents("vevent").map((one) => new ICAL.Event(one));
    const master = all.find((one) => !one.isRecurrenceException());
    all.filter((one) => one.isRecurrenceException()).forEach((one) => master.relateException(one));
    const show = (time) => [time.toString(), time.isDate ? "" : time.toUnixTime()];
    if (!master.isRecurring()) found.push([master.startDate, master.endDate].map(show));
    else {
      const walk = master.iterator();
      for (let next, n = 0; (next = walk.next()) && n < 20000; n++) {
        if (next.toUnixTime() > job.until) break;
        const one = master.getOccurrenceDetails(next);
        found.push([one.startDate, one.endDate].map(show));
      }
    }
  } catch (problem) { error = String(problem); }
  process.stdout.write(JSON.stringify({ id: job.id, found, error }) + "\n");
});
