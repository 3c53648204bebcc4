// Calls to the server. Without an answer they are repeated until there is one.
const LONGEST = 20_000;
const FIRST_PAUSE = 1;
const LAST_PAUSE = 15;

// The server refuses a call, and says why.
export class Refused extends Error {
  constructor(status, why) {
    super(why);
    this.status = status;
  }
}

// No answer, or one that asks to wait.
export class Away extends Error {
  constructor(why = "", wait = 0) {
    super(why);
    this.wait = wait;
  }
}

export class Server {
  #again = () => {};

  // `onaway` is called with an error if no answer comes, and with null once one came again.
  constructor(token, onaway) {
    this.token = token;
    this.onaway = onaway;
    addEventListener("online", () => this.again());
  }

  async call(name, body = {}) {
    const headers = { "Content-Type": "application/json" };
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    const request = {
      method: "POST",
      headers,
      body: JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
      signal: AbortSignal.timeout(LONGEST),
    };
    let answer;
    let content;
    try {
      answer = await fetch(`api/${name}`, request);
      content = await answer.json();
    } catch {
      throw new Away(); // also what something between here and the server says
    }
    if (answer.ok) return content;
    const why = content?.error;
    if (typeof why !== "string") throw new Away();
    if (answer.status === 429 || answer.status >= 500) {
      throw new Away(why, Number(answer.headers.get("Retry-After")) || 0);
    }
    throw new Refused(answer.status, why);
  }

  // Call until the server accepts or refuses it. A refusal says how often it was `tried`.
  async insist(name, body) {
    for (let tried = 1, pause = FIRST_PAUSE; ; tried += 1, pause = Math.min(2 * pause, LAST_PAUSE)) {
      try {
        const content = await this.call(name, body);
        this.onaway(null);
        return content;
      } catch (error) {
        if (!(error instanceof Away)) {
          this.onaway(null);
          throw Object.assign(error, { tried });
        }
        this.onaway(error);
        await this.#wait(Math.max(pause, error.wait));
      }
    }
  }

  // Try now what waits.
  again() {
    this.#again();
  }

  #wait(seconds) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, 1000 * seconds);
      this.#again = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

// What this tab keeps, also if it is loaded again; if the browser forbids that, while it is open.
export class Shelf {
  #memory = new Map();

  constructor(name) {
    this.name = name;
  }

  get(key) {
    try {
      const text = sessionStorage.getItem(`${this.name} ${key}`);
      if (text !== null) return JSON.parse(text);
    } catch {
      // not to be had
    }
    return this.#memory.get(key) ?? null;
  }

  put(key, value) {
    this.#memory.set(key, value);
    try {
      if (value === null) sessionStorage.removeItem(`${this.name} ${key}`);
      else sessionStorage.setItem(`${this.name} ${key}`, JSON.stringify(value));
    } catch {
      // full, or not to be had
    }
  }
}
