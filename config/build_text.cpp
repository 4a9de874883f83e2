#include "config/build_text.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>

#include "config/commit.hpp"  // made by commit.cmake
#include "config/devices/device_drivers.hpp"

// Weak: null in programs that do not link OpenSSL.
extern "C" __attribute__((weak)) const char* OpenSSL_version(int);

namespace gpunbd::config {
namespace {

namespace fs = std::filesystem;

std::string line(std::string_view name, std::string_view value) {
    return fmt::format("{:<10}{}\n", name, value);
}

// The path of an installed file, which packages may compress. `relative` to the program's folder.
std::string installed(const fs::path& program, std::string_view relative) {
    std::error_code error;
    for (std::string_view ending : {"", ".gz"}) {
        const fs::path path = (program.parent_path() / relative).lexically_normal().concat(ending);
        if (fs::exists(path, error)) return path.string();
    }
    return "not installed with this program";
}

std::string_view openssl() {
    if (OpenSSL_version == nullptr) return "not used";
    std::string_view text = OpenSSL_version(0);  // "OpenSSL 3.0.15 3 Sep 2024"
    if (constexpr std::string_view name = "OpenSSL "; text.starts_with(name)) {
        text.remove_prefix(name.size());
    }
    return text;
}

}  // namespace

std::string version() { return GPUNBD_VERSION; }

std::string commit() { return GPUNBD_COMMIT; }

std::string build_summary() {
    std::string out = GPUNBD_BUILD_TYPE;
    for (const DriverInfo& driver : device_drivers()) {
        if (driver.library.empty()) continue;
        out += driver.library_version.empty()
                   ? fmt::format(", without {}", driver.library)
                   : fmt::format(", {} {}", driver.library, driver.library_version);
    }
    return out;
}

std::string version_text() { return "gpunbd " + version() + "\n"; }

std::string build_text() {
    const std::string commit = config::commit();
    std::error_code error;
    const fs::path program = fs::read_symlink("/proc/self/exe", error);
    std::string out = version_text();
    out += line("commit", commit.empty() ? "unknown" : commit);
    out += line("build", GPUNBD_BUILD_TYPE);
    out += line("compiler", GPUNBD_COMPILER);
    for (const DriverInfo& driver : device_drivers()) {
        if (driver.library.empty()) continue;
        out += line(driver.library, driver.library_version.empty()
                                        ? fmt::format("without: no {} devices", driver.form)
                                        : driver.library_version);
    }
    out += line("Boost", GPUNBD_BOOST_VERSION);
    out += line("OpenSSL", openssl());
    out += line("fmt", GPUNBD_FMT_VERSION);
    out += line("spdlog", GPUNBD_SPDLOG_VERSION);
    out += line("yaml-cpp", GPUNBD_YAML_CPP_VERSION);
    out += line("CLI11", GPUNBD_CLI11_VERSION);
    out += line("program", error ? "unknown: /proc is not mounted" : program.string());
    out += line("manuals", installed(program, GPUNBD_MAN8 "/gpunbd.8"));
    out += line("", installed(program, GPUNBD_MAN5 "/gpunbd.yaml.5"));
    out += line("example", installed(program, GPUNBD_DOC "/gpunbd.example.yaml"));
    out += line("config", "none is read unless named: gpunbd serve --config FILE");
    return out;
}

}  // namespace gpunbd::config
