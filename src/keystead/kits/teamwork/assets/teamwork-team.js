// The team on the teamwork page: members, invitations and settings; joining and creating a team.

const INVITATION = "keystead.teamwork.invitation"; // the token of a link, until it is used or dismissed
const ROLES = ["OWNER", "ADMIN", "MEMBER"];
const LEADS = ["OWNER", "ADMIN"];

const by = (id) => document.getElementById(id);

function kept(value = undefined) {
  try {
    if (value === undefined) return sessionStorage.getItem(INVITATION);
    if (value === null) sessionStorage.removeItem(INVITATION);
    else sessionStorage.setItem(INVITATION, value);
  } catch {
    // Storage is off: the link works as long as the page is open.
  }
  return value ?? null;
}

function zones() {
  const known = Intl.supportedValuesOf?.("timeZone") ?? [];
  return ["UTC", ...known.filter((zone) => zone !== "UTC")];
}

function choose(select, zone) {
  if (!select.options.length) select.append(...zones().map((one) => new Option(one, one)));
  if (![...select.options].some((one) => one.value === zone)) select.append(new Option(zone, zone));
  select.value = zone;
}

// ask(path, method, body) sends a request; act(work) shows its errors; say(sentence) is read out;
// moved() is called when the user changes teams; changed() when names or days must be redrawn.
export class Team {
  #ask;
  #act;
  #say;
  #moved;
  #changed;
  #make;
  #button;
  #me = null;
  #team = null;
  #invitations = [];
  #token = null;

  constructor({ ask, act, say, moved, changed, make, button, words }) {
    Object.assign(this, { words, members: [] });
    this.#ask = ask;
    this.#act = act;
    this.#say = say;
    this.#moved = moved;
    this.#changed = changed;
    this.#make = make;
    this.#button = button;
    this.#takeLink();
    addEventListener("hashchange", () => {
      this.#takeLink();
      if (this.#me) this.lookAtLink();
      else this.drawLink();
    });
    by("join-team").addEventListener("click", () => this.#join());
    by("not-now").addEventListener("click", () => this.#forgetLink());
    by("create-team-form").addEventListener("submit", (event) => this.#create(event));
    by("invite-form").addEventListener("submit", (event) => this.#invite(event));
    by("team-form").addEventListener("submit", (event) => this.#save(event));
    by("slack-form").addEventListener("submit", (event) => this.#saveSlack(event));
    by("leave-team").addEventListener("click", () => this.#confirm(true));
    by("stay").addEventListener("click", () => this.#confirm(false));
    by("leave-now").addEventListener("click", () => this.#leave());
    by("slack-log").addEventListener("toggle", () => by("slack-log").open && this.#lookAtSlack());
    by("copy-link").addEventListener("click", () => this.#copy());
  }

  get isLead() {
    return LEADS.includes(this.#me?.teamRole);
  }

  nameOf(user) {
    return this.members.find((one) => one.id === user)?.name ?? `#${user}`;
  }

  // The signed-in user, or null.
  async enter(me) {
    this.#me = me;
    this.#team = null;
    this.members = [];
    this.#invitations = [];
    by("new-link").hidden = true;
    this.#confirm(false, false);
    this.draw();
    if (!me) return this.drawLink();
    choose(by("create-zone"), Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC");
    await this.lookAtLink();
    if (!me.teamId) await this.#lookAtMine();
  }

  // --- invitation links --------------------------------------------------------------------------------------------

  // The token is in the fragment, which no server sees. It is removed from the address and the history.
  #takeLink() {
    const found = /^#invitation=([\w-]{1,200})$/.exec(location.hash);
    if (found) {
      kept(found[1]);
      history.replaceState(null, "", location.pathname + location.search);
    }
    this.#token = found ? found[1] : (this.#token ?? kept());
  }

  #forgetLink() {
    this.#token = null;
    kept(null);
    this.drawLink();
  }

  drawLink(text = null, canJoin = false) {
    by("invited-here").hidden = !this.#token || Boolean(this.#me);
    by("invitation").hidden = !this.#token || !this.#me || !text;
    by("invitation-text").textContent = text ?? "";
    by("join-team").hidden = !canJoin;
  }

  async lookAtLink() {
    if (!this.#token || !this.#me) return this.drawLink();
    let found;
    try {
      found = await this.#ask("/api/invitations/look", "POST", { token: this.#token });
    } catch (error) {
      if (error.status !== 410) return;
      this.drawLink(this.words.invitationGone);
      kept(null);
      return;
    }
    const text = this.words.invitedTo(found.team, found.invitedBy, this.words.teamRoles[found.teamRole]);
    if (this.#me.teamId) this.drawLink(`${text} ${this.words.leaveFirst}`);
    else this.drawLink(text, true);
    by("invitation-title").focus({ preventScroll: true });
  }

  async #join() {
    const joined = await this.#act(() => this.#ask("/api/invitations/accept", "POST", { token: this.#token }));
    if (!joined) return;
    this.#forgetLink();
    this.#say(this.words.joined(joined.name));
    await this.#moved();
  }

  // --- without a team ----------------------------------------------------------------------------------------------

  async #lookAtMine() {
    const { invitations } = await this.#ask("/api/invitations");
    by("my-invitations").replaceChildren(
      ...invitations.map((one) => {
        const row = this.#make("li", "item");
        const text = this.words.invitedTo(one.team, one.invitedBy, this.words.teamRoles[one.teamRole]);
        const join = this.#button(this.words.joinTeam, "small", async () => {
          const joined = await this.#act(() => this.#ask("/api/invitations/accept", "POST", { invitation: one.id }));
          if (joined) await this.#moved();
        });
        row.append(this.#make("p", "text", text), join);
        return row;
      }),
    );
  }

  async #create(event) {
    event.preventDefault();
    const name = by("create-name").value.trim();
    if (!name) return by("create-name").focus();
    const body = { name, zone: by("create-zone").value };
    if (await this.#act(() => this.#ask("/api/teams", "POST", body))) await this.#moved();
  }

  // --- in a team ---------------------------------------------------------------------------------------------------

  async look() {
    if (!this.#me?.teamId) return;
    const mine = this.#me;
    let found;
    try {
      found = await Promise.all([
        this.#ask("/api/team"),
        this.#ask("/api/team/members"),
        this.isLead ? this.#ask("/api/team/invitations") : { invitations: [] },
      ]);
    } catch (error) {
      if (error.status !== 409) throw error;
      by("team").hidden = true; // an application manages the users
      return;
    }
    if (this.#me !== mine) return;
    [this.#team, { members: this.members }, { invitations: this.#invitations }] = found;
    this.draw();
    this.#changed();
  }

  draw() {
    const { words } = this;
    by("team").hidden = !this.#team;
    for (const id of ["invite", "team-settings", "slack-log", "open-invitations"]) by(id).hidden = !this.isLead;
    if (!this.#team) return;
    by("team-title").textContent = this.#team.name || words.team;
    by("team-hint").textContent = words.teamWorks(this.#team.zone, [...this.#team.deadlineDays].reverse().join(", "));
    if (!by("team-settings").open) {
      by("team-name").value = this.#team.name;
      choose(by("team-zone"), this.#team.zone);
      by("team-days").value = [...this.#team.deadlineDays].reverse().join(", ");
    }
    const mine = this.members.find((one) => one.id === this.#me.id);
    if (!by("slack-own").open) by("slack-id").value = mine?.slackId ?? "";
    const roles = ROLES.filter((role) => role !== "OWNER" || this.#me.teamRole === "OWNER");
    const chosen = by("invite-role").value || "MEMBER";
    by("invite-role").replaceChildren(...roles.map((role) => new Option(words.teamRoles[role], role)));
    by("invite-role").value = roles.includes(chosen) ? chosen : "MEMBER";
    by("members").replaceChildren(...this.members.map((one) => this.#memberOf(one, roles)));
    by("invitations").replaceChildren(...this.#invitations.map((one) => this.#invitationOf(one)));
    by("no-invitations").hidden = this.#invitations.length > 0;
  }

  #memberOf(one, roles) {
    const { words } = this;
    const row = this.#make("li", "item");
    row.dataset.user = one.id;
    const text = this.#make("div", "text");
    const name = this.#make("p", "title");
    name.append(this.#make("bdi", "", one.name));
    if (one.id === this.#me.id) name.append(` (${words.me})`);
    const about = [words.teamRoles[one.teamRole] ?? one.teamRole, one.email, one.slackId && `Slack ${one.slackId}`];
    text.append(name, this.#make("p", "about", about.filter(Boolean).join(" · ")));
    row.append(text);
    if (!this.isLead || one.id === this.#me.id || !roles.includes(one.teamRole)) return row;
    const tools = this.#make("div", "buttons");
    const select = this.#make("select");
    select.setAttribute("aria-label", words.roleOf(one.name));
    select.append(...roles.map((role) => new Option(words.teamRoles[role], role)));
    select.value = one.teamRole;
    select.addEventListener("change", async () => {
      const body = { teamRole: select.value };
      if (await this.#act(() => this.#ask(`/api/team/members/${one.id}`, "PATCH", body))) this.#say(words.saved);
      await this.look();
    });
    const out = this.#button(
      words.takeOut,
      "small quiet",
      async () => {
        if (out.dataset.asked) {
          if (await this.#act(() => this.#ask(`/api/team/members/${one.id}`, "DELETE"))) {
            this.#say(words.isOut(one.name));
          }
          return this.look();
        }
        out.dataset.asked = "yes"; // the second press confirms
        out.textContent = words.reallyOut(one.name);
        out.setAttribute("aria-label", words.reallyOut(one.name));
      },
      words.takeOutOf(one.name),
    );
    tools.append(select, out);
    row.append(tools);
    return row;
  }

  #invitationOf(one) {
    const { words } = this;
    const row = this.#make("li", "item");
    const whom = one.name || (one.userId === null ? words.whoeverHasIt : `#${one.userId}`);
    const until = new Intl.DateTimeFormat(words.tag, { dateStyle: "medium", timeStyle: "short" });
    const text = this.#make("div", "text");
    const about = `${words.teamRoles[one.teamRole]} · ${words.until(until.format(Date.parse(one.expiresAt)))}`;
    text.append(this.#make("p", "title", whom), this.#make("p", "about", about));
    const end = this.#button(
      words.withdraw,
      "small quiet",
      async () => {
        if (await this.#act(() => this.#ask(`/api/team/invitations/${one.id}`, "DELETE"))) this.#say(words.withdrawn);
        await this.look();
      },
      words.withdrawOf(whom),
    );
    row.append(text, end);
    return row;
  }

  async #invite(event) {
    event.preventDefault();
    const body = { name: by("invite-name").value.trim(), teamRole: by("invite-role").value };
    const made = await this.#act(() => this.#ask("/api/team/invitations", "POST", body));
    if (!made) return;
    by("invite-name").value = "";
    by("new-link").hidden = false;
    by("link").value = made.link;
    by("link-hint").textContent = this.words.linkHint;
    by("link").focus();
    by("link").select();
    await this.look();
  }

  async #copy() {
    by("link").select();
    try {
      await navigator.clipboard.writeText(by("link").value);
      by("link-hint").textContent = this.words.copied;
    } catch {
      by("link").focus(); // selected, for copying by hand
    }
  }

  async #save(event) {
    event.preventDefault();
    const days = by("team-days").value.split(/[,、\s]+/).filter(Boolean).map(Number);
    const isWrong = !days.length || days.some((one) => !Number.isInteger(one) || one < 0 || one > 365);
    by("team-problem").hidden = !isWrong;
    by("team-problem").textContent = isWrong ? this.words.daysWrong : "";
    if (isWrong) return by("team-days").focus();
    const body = { name: by("team-name").value.trim() || undefined, zone: by("team-zone").value, deadlineDays: days };
    if (!(await this.#act(() => this.#ask("/api/team", "PATCH", body)))) return;
    by("team-settings").open = false;
    this.#say(this.words.saved);
    await this.look();
  }

  async #saveSlack(event) {
    event.preventDefault();
    const body = { slackId: by("slack-id").value.trim() };
    if (!(await this.#act(() => this.#ask(`/api/team/members/${this.#me.id}`, "PATCH", body)))) return;
    by("slack-own").open = false;
    this.#say(this.words.saved);
    await this.look();
  }

  async #lookAtSlack() {
    const { words } = this;
    const found = await this.#act(() => this.#ask("/api/team/slack-log"));
    if (!found) return;
    by("no-attempts").hidden = found.attempts.length > 0;
    const format = new Intl.DateTimeFormat(words.tag, { dateStyle: "short", timeStyle: "medium" });
    by("attempts").replaceChildren(
      ...found.attempts.map((one) => {
        const row = this.#make("li", "item");
        const text = this.#make("div", "text");
        const state = `${words.attempts[one.status]} · ${this.nameOf(one.userId)}`;
        const when = format.format(Date.parse(one.sentAt));
        text.append(this.#make("p", "title", state), this.#make("p", "about", [when, one.errorMessage].filter(Boolean).join(" · ")));
        row.append(text);
        return row;
      }),
    );
  }

  #confirm(isAsked, isFocused = true) {
    by("leave-team").hidden = isAsked;
    by("leave-really").hidden = !isAsked;
    if (isFocused) by(isAsked ? "stay" : "leave-team").focus();
  }

  async #leave() {
    if (!(await this.#act(() => this.#ask("/api/team/leave", "POST")))) return this.#confirm(false);
    this.#say(this.words.left);
    await this.#moved();
  }
}
