//! The mock driver's PTX compiler: any text is compiled, or refused at an existing line.

/// Compiles any text as a module.
pub fn ptx(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Err((line, what)) = mockcuda::testing::compile(&text) {
        let lines = text.split('\n').count();
        assert!(line >= 1 && line as usize <= lines && !what.is_empty(), "line {line} of {lines}: {what}");
    }
}
