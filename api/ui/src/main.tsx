import "@picocss/pico/css/pico.min.css";
import "./style.css";
import { createRoot } from "react-dom/client";
import { App } from "./app";

createRoot(document.getElementById("root")!).render(<App />);
