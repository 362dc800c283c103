// Keeps the key for this origin, and takes the token out of the address.
import { KEY } from "./api.js";

const key = document.querySelector("meta[name=key]").content;
localStorage.setItem(KEY, key);
location.replace("/");
