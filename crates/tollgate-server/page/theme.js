// Light or dark, before the first paint: a separate script that runs while the head is parsed.
// `data-theme` has the choice; without it the system's preference applies.
(() => {
  const KEPT = "tollgate-theme";
  const THEMES = ["auto", "light", "dark"];
  const root = document.documentElement;
  const now = () => root.dataset.theme ?? "auto";
  const show = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  try {
    show(localStorage.getItem(KEPT));
  } catch {
    // Storage may be forbidden; the system's preference then applies.
  }

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const say = () => {
      button.textContent = `Theme: ${now()}`;
    };
    button.addEventListener("click", () => {
      show(THEMES[(THEMES.indexOf(now()) + 1) % THEMES.length]);
      say();
      try {
        localStorage.setItem(KEPT, now());
      } catch {
        // It then applies until the page is closed.
      }
    });
    say();
  });
})();
