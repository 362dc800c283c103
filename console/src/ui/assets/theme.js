// Light, dark, or as the system has it.

const CHOICES = ["system", "light", "dark"];
const STORE = "repot-theme";

function show(button, choice) {
  if (choice === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  button.textContent = `Theme: ${choice}`;
}

/** Makes the button switch, and shows what was chosen last. */
export function theme(button) {
  let at = Math.max(0, CHOICES.indexOf(localStorage.getItem(STORE)));
  show(button, CHOICES[at]);
  button.addEventListener("click", () => {
    at = (at + 1) % CHOICES.length;
    localStorage.setItem(STORE, CHOICES[at]);
    show(button, CHOICES[at]);
  });
}
