// The theme: the system's, light, or dark.

import { $ } from './dom.js';

const NAMES = { system: 'Theme: system', light: 'Theme: light', dark: 'Theme: dark' };
const SIGNS = { system: '◐', light: '☀', dark: '☾' };
const ORDER = Object.keys(NAMES);

function use(theme) {
  document.documentElement.dataset.theme = theme;
  $('theme').title = NAMES[theme];
  $('theme').setAttribute('aria-label', NAMES[theme]);
  $('theme').textContent = SIGNS[theme];
}

let theme = localStorage.getItem('hookline-theme');
if (!ORDER.includes(theme)) theme = 'system';
use(theme);
$('theme').addEventListener('click', () => {
  theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
  localStorage.setItem('hookline-theme', theme);
  use(theme);
});
