//! Writes the seeds of a target: `write_seeds TARGET FOLDER`.

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(target), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err(std::io::Error::other("usage: write_seeds TARGET FOLDER"));
    };
    std::fs::create_dir_all(&folder)?;
    for (number, (_, data)) in fwd_app_fuzz::seeds::of(&target).into_iter().enumerate() {
        std::fs::write(std::path::Path::new(&folder).join(format!("seed-{number:04}")), data)?;
    }
    Ok(())
}
