//! GRUB for BIOS and UEFI, and the ISO around everything. Every name, time and number that a tool would draw or take from the clock
//! is given, so that the same inputs give the same bytes.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use super::packages::Packages;
use super::{BuildError, Manifest, licences, tools};
use crate::cpio::Archive;
use crate::slot;

const GRUB_CONFIG: &str = include_str!("../../boot/grub.cfg");
/// Built into GRUB's core: finds the ISO by a file that only it has, then reads its configuration.
const GRUB_EARLY: &str = include_str!("../../boot/early.cfg");
/// GRUB modules on both platforms: all that the two configurations use.
const GRUB_COMMON: [&str; 8] =
    ["configfile", "echo", "iso9660", "linux", "minicmd", "normal", "search", "search_fs_file"];
const GRUB_BIOS: [&str; 4] = ["biosdisk", "part_msdos", "part_gpt", "reboot"];
const GRUB_EFI: [&str; 6] = ["all_video", "efi_gop", "efi_uga", "part_gpt", "part_msdos", "fat"];
/// Volume name of the ISO, at most 32 characters of A-Z, 0-9 and _.
const VOLUME: &str = "FOURCORNERS_WORKER";
/// Serial number of the FAT file system that holds GRUB for UEFI; drawn once.
const FAT_SERIAL: &str = "46435752";
/// KiB of that file system: GRUB's core has about 400.
const FAT_KIB: u32 = 1440;
/// GUID of the partition table that makes the ISO bootable from a USB stick; drawn once.
const DISK_GUID: &str = "8f6d2c1e5b7a4d3f9c0e1a2b3c4d5e6f";

pub(super) struct Parts<'a> {
    pub(super) packages: &'a Packages,
    pub(super) vmlinuz: &'a Path,
    pub(super) initramfs: &'a [u8],
    pub(super) manifest: &'a Manifest,
}

/// Makes the ISO at `iso`, with `work` for what comes between.
pub(super) fn make_iso(parts: &Parts<'_>, work: &Path, iso: &Path) -> Result<(), BuildError> {
    let tree = work.join("tree");
    fill_tree(parts, &tree)?;
    let epoch = parts.manifest.source_date_epoch;
    let early = work.join("early.cfg");
    write(&early, GRUB_EARLY)?;
    mkimage(parts.packages, work, "i386-pc-eltorito", "i386-pc", &GRUB_BIOS, &tree.join("boot/grub/bios.img"), epoch)?;
    let efi = work.join("bootx64.efi");
    mkimage(parts.packages, work, "x86_64-efi", "x86_64-efi", &GRUB_EFI, &efi, epoch)?;
    fat_image(work, &efi, &tree.join("boot/grub/efi.img"), epoch)?;
    let mbr = parts.packages.root.join("usr/lib/grub/i386-pc/boot_hybrid.img");
    xorriso(&tree, &mbr, iso, work, epoch)
}

fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), BuildError> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(BuildError::io(dir))?;
    }
    fs::write(path, content).map_err(BuildError::io(path))
}

fn fill_tree(parts: &Parts<'_>, tree: &Path) -> Result<(), BuildError> {
    let vmlinuz = fs::read(parts.vmlinuz).map_err(BuildError::io(parts.vmlinuz))?;
    write(&tree.join("boot/vmlinuz"), vmlinuz)?;
    write(&tree.join("boot/initramfs.gz"), parts.initramfs)?;
    let mut bootstrap = Archive::default();
    bootstrap.file(slot::FILE_NAME, slot::empty(), false);
    write(&tree.join("boot/bootstrap.cpio"), bootstrap.bytes(parts.manifest.source_date_epoch))?;
    write(&tree.join("boot/grub/grub.cfg"), GRUB_CONFIG)?;
    let manifest = serde_json::to_vec_pretty(parts.manifest).unwrap_or_default();
    write(&tree.join("fourcorners/manifest.json"), manifest)?;
    licences::write(parts.packages, parts.manifest, &tree.join("fourcorners/licences"))
}

fn mkimage(
    packages: &Packages,
    work: &Path,
    format: &str,
    platform: &str,
    own: &[&str],
    out: &Path,
    epoch: u32,
) -> Result<(), BuildError> {
    let modules = packages.root.join("usr/lib/grub").join(platform);
    let mut args = arguments(&["--format", format, "--prefix", "/boot/grub", "--config", "early.cfg", "--directory"]);
    args.extend([modules.into(), "--output".into(), out.into()]);
    args.extend(arguments(&GRUB_COMMON));
    args.extend(arguments(own));
    tools::run("grub-mkimage", &args, work, epoch).map(|_| ())
}

fn arguments(texts: &[&str]) -> Vec<OsString> {
    texts.iter().map(OsString::from).collect()
}

/// The file system from which UEFI firmware starts GRUB.
fn fat_image(work: &Path, efi: &Path, out: &Path, epoch: u32) -> Result<(), BuildError> {
    let out = out.as_os_str();
    let (size, serial) = (FAT_KIB.to_string(), format!("0x{FAT_SERIAL}"));
    let args = [
        "-i".as_ref(),
        out,
        "-C".as_ref(),
        "-f".as_ref(),
        size.as_ref(),
        "-N".as_ref(),
        serial.as_ref(),
        "::".as_ref(),
    ];
    tools::run("mformat", &args, work, epoch)?;
    tools::run("mmd", &["-i".as_ref(), out, "::/EFI".as_ref(), "::/EFI/BOOT".as_ref()], work, epoch)?;
    let to = "::/EFI/BOOT/BOOTX64.EFI";
    tools::run("mcopy", &["-i".as_ref(), out, efi.as_os_str(), to.as_ref()], work, epoch).map(|_| ())
}

fn xorriso(tree: &Path, mbr: &Path, iso: &Path, work: &Path, epoch: u32) -> Result<(), BuildError> {
    let date = format!("={epoch}");
    // -no_rc must be the first, or the settings of whoever builds change the image.
    let mut args =
        arguments(&["-no_rc", "-as", "mkisofs", "-quiet", "-volid", VOLUME, "-appid", "FOURCORNERS", "-rational-rock"]);
    args.extend(arguments(&[
        "-uid",
        "0",
        "-gid",
        "0",
        "-b",
        "boot/grub/bios.img",
        "-no-emul-boot",
        "-boot-load-size",
        "4",
    ]));
    args.extend(arguments(&["-boot-info-table", "--grub2-boot-info", "-eltorito-alt-boot", "-e", "boot/grub/efi.img"]));
    args.extend(arguments(&["-no-emul-boot", "-isohybrid-gpt-basdat", "--gpt_disk_guid", DISK_GUID]));
    args.extend(arguments(&["--set_all_file_dates", &date, "--grub2-mbr"]));
    args.extend([mbr.into(), "-o".into(), iso.into(), tree.into()]);
    tools::run("xorriso", &args, work, epoch).map(|_| ())
}
