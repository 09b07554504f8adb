//! The power button: how a hypervisor asks a machine to shut down in order (ACPI).

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Where the kernel shows its input devices, and what ACPI's driver calls the button.
const INPUTS: &str = "/sys/class/input";
const BUTTON: &str = "Power Button";
/// `struct input_event` on a 64-bit kernel (linux/input.h): 16 bytes of time, type, code, value.
const EVENT_BYTES: usize = 24;
const EV_KEY: u16 = 1;
const KEY_POWER: u16 = 116;
const PRESSED: i32 = 1;

/// Whether the button was pressed. A machine may have two: ACPI's own and a device of its firmware.
pub(crate) struct PowerButton {
    pressed: Arc<AtomicBool>,
}

impl PowerButton {
    /// Watches the buttons there are now, once their driver is loaded.
    pub(crate) fn watch() -> Self {
        let pressed = Arc::new(AtomicBool::new(false));
        for button in buttons() {
            let pressed = Arc::clone(&pressed);
            thread::spawn(move || listen(button, &pressed));
        }
        Self { pressed }
    }

    pub(crate) fn is_pressed(&self) -> bool {
        self.pressed.load(Ordering::Relaxed)
    }
}

fn buttons() -> Vec<File> {
    let entries = fs::read_dir(INPUTS).into_iter().flatten().flatten();
    let is_button = |input: &Path| {
        let name = fs::read_to_string(input.join("device/name"));
        name.is_ok_and(|name| name.trim() == BUTTON)
    };
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("event") && is_button(&entry.path()))
        .filter_map(|entry| File::open(Path::new("/dev/input").join(entry.file_name())).ok())
        .collect()
}

fn listen(mut button: File, pressed: &AtomicBool) {
    let mut event = [0; EVENT_BYTES];
    while button.read_exact(&mut event).is_ok() {
        if is_press(&event) {
            pressed.store(true, Ordering::Relaxed);
        }
    }
}

fn is_press(event: &[u8; EVENT_BYTES]) -> bool {
    let [.., t0, t1, c0, c1, v0, v1, v2, v3] = *event;
    (u16::from_ne_bytes([t0, t1]), u16::from_ne_bytes([c0, c1]), i32::from_ne_bytes([v0, v1, v2, v3]))
        == (EV_KEY, KEY_POWER, PRESSED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: u16, code: u16, value: i32) -> [u8; EVENT_BYTES] {
        let mut event = [9; EVENT_BYTES];
        event[16..18].copy_from_slice(&kind.to_ne_bytes());
        event[18..20].copy_from_slice(&code.to_ne_bytes());
        event[20..].copy_from_slice(&value.to_ne_bytes());
        event
    }

    #[test]
    fn a_press_is_told_from_a_release_and_from_other_keys() {
        assert!(is_press(&event(1, 116, 1)));
        for other in [event(1, 116, 0), event(1, 142, 1), event(0, 0, 0), event(4, 116, 1)] {
            assert!(!is_press(&other));
        }
    }
}
