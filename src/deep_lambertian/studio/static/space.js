// The surface in space: a mesh with a vertex for every pixel, lit as the picture is, turned by mouse, finger and keys.
"use strict";
function spaceView(canvas) {
  const gl = canvas.getContext("webgl2", { antialias: true, preserveDrawingBuffer: true });
  if (!gl) return null;
  const VERTEX = `#version 300 es
    layout(location = 0) in float height;
    layout(location = 1) in vec3 surface;
    layout(location = 2) in vec3 colour;
    uniform vec2 size, turn;
    uniform vec3 light, tint;
    uniform float ambient, intensity, zoom;
    out vec3 value;
    void main() {
      float column = float(gl_VertexID % int(size.x)), row = float(gl_VertexID / int(size.x));
      vec3 at = vec3(column - size.x / 2.0, size.y / 2.0 - row, height) * (1.5 / size.y);
      float a = turn.x, b = turn.y;
      at = mat3(cos(a), 0, -sin(a), 0, 1, 0, sin(a), 0, cos(a)) * at;
      at = mat3(1, 0, 0, 0, cos(b), sin(b), 0, -sin(b), cos(b)) * at;
      gl_Position = vec4(zoom * at.xy, -0.3 * at.z, 1.0 - 0.25 * at.z);  // near things look a little larger
      value = colour * tint * intensity * (max(dot(surface, light), 0.0) + ambient * length(surface));
    }`;
  const FRAGMENT = `#version 300 es
    precision highp float;
    in vec3 value;
    uniform bool srgb;
    out vec4 result;
    void main() {
      vec3 v = clamp(value, 0.0, 1.0);
      vec3 encoded = mix(1.055 * pow(v, vec3(1.0 / 2.4)) - 0.055, v * 12.92, lessThanEqual(v, vec3(0.0031308)));
      result = vec4(srgb ? encoded : v, 1);
    }`;
  const program = gl.createProgram();
  for (const [type, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(type);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) return null;
  gl.useProgram(program);
  gl.enable(gl.DEPTH_TEST);
  const place = Object.fromEntries(["size", "turn", "light", "tint", "ambient", "intensity", "zoom", "srgb"]
    .map((name) => [name, gl.getUniformLocation(program, name)]));
  const buffers = [0, 1, 2].map(() => gl.createBuffer()), order = gl.createBuffer();
  const HOME = [0.5, 0.15], turn = [...HOME];
  let count = 0, zoom = 1, waiting = 0, lit = { light: [0, 0, 1], tint: [1, 1, 1], ambient: 0, intensity: 1 };

  const ask = () => (waiting ||= requestAnimationFrame(draw));

  function draw() {
    waiting = 0;
    if (!count) return;
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.uniform2fv(place.turn, turn);
    gl.uniform3fv(place.light, lit.light);
    gl.uniform3fv(place.tint, lit.tint);
    for (const name of ["ambient", "intensity"]) gl.uniform1f(place[name], lit[name]);
    gl.uniform1f(place.zoom, zoom);
    gl.drawElements(gl.TRIANGLES, count, gl.UNSIGNED_INT, 0);
  }

  function rotate(right, up) {
    turn[0] = Math.min(Math.max(turn[0] + right, -1.5), 1.5);
    turn[1] = Math.min(Math.max(turn[1] + up, -1.2), 1.2);
    ask();
  }

  let last = null;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = [event.clientX, event.clientY];
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!canvas.hasPointerCapture(event.pointerId) || !last) return;
    const span = canvas.clientWidth / 3;
    rotate((event.clientX - last[0]) / span, (event.clientY - last[1]) / span);
    last = [event.clientX, event.clientY];
  });
  const KEYS = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key in KEYS) rotate(...KEYS[event.key]);
    else if (event.key === "Home") (turn[0] = HOME[0]), (turn[1] = HOME[1]), (zoom = 1), ask();
    else if (event.key === "+" || event.key === "-") (zoom *= event.key === "+" ? 1.1 : 0.9), ask();
    else return;
    event.preventDefault();
  });

  return {
    turn,
    load({ heights, normals, colour, rows, columns, srgb }) {
      const middle = heights.reduce((sum, each) => sum + each, 0) / heights.length;
      [[heights.map((each) => each - middle), 1], [normals, 3], [colour, 3]].forEach(([values, width], i) => {
        gl.bindBuffer(gl.ARRAY_BUFFER, buffers[i]);
        gl.bufferData(gl.ARRAY_BUFFER, values, gl.STATIC_DRAW);
        gl.enableVertexAttribArray(i);
        gl.vertexAttribPointer(i, width, gl.FLOAT, false, 0, 0);
      });
      const corners = new Uint32Array(6 * (rows - 1) * (columns - 1));
      for (let row = 0, at = 0; row < rows - 1; row++) {
        for (let column = 0; column < columns - 1; column++, at += 6) {
          const k = row * columns + column;
          corners.set([k, k + columns, k + 1, k + 1, k + columns, k + columns + 1], at);
        }
      }
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, order);
      gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, corners, gl.STATIC_DRAW);
      gl.uniform2f(place.size, columns, rows);
      gl.uniform1i(place.srgb, srgb);
      count = corners.length;
      ask();
    },
    light(state) {
      lit = state;
      ask();
    },
  };
}
