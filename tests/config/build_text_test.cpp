#include "config/build_text.hpp"

#include <fmt/core.h>
#include <openssl/crypto.h>

#include <CLI/Version.hpp>

#include "tests/test.hpp"

namespace gpunbd::config {
namespace {

// The value after `name` at the start of a line.
std::string value_of(const std::string& text, const std::string& name) {
    const std::size_t at = ("\n" + text).find("\n" + name + " ");
    if (at == std::string::npos) return "(not there)";
    const std::size_t start = text.find_first_not_of(' ', at + name.size());
    return text.substr(start, text.find('\n', start) - start);
}

TEST_CASE("--version prints one line, and --verbose adds lines to it") {
    const std::string version = version_text();
    CHECK(version.find('\n') == version.size() - 1);
    CHECK(version == "gpunbd " GPUNBD_TEST_VERSION "\n");
    CHECK(build_text().starts_with(version));
}

TEST_CASE("--version --verbose: library versions equal those of the headers") {
    const std::string text = build_text();
    CHECK(value_of(text, "CLI11") == CLI11_VERSION);
    CHECK(value_of(text, "fmt") ==
          fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100));
#ifdef __clang__
    CHECK(value_of(text, "compiler").starts_with("Clang "));
#else
    CHECK(value_of(text, "compiler") ==
          fmt::format("GNU {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__));
#endif
    for (const char* name : {"Boost", "spdlog", "yaml-cpp"}) {
        CAPTURE(name);
        const std::string value = value_of(text, name);
        CHECK(value.find_first_not_of("0123456789.") == std::string::npos);
        CHECK(value.find('.') != std::string::npos);
    }
    CHECK("OpenSSL " + value_of(text, "OpenSSL") == OpenSSL_version(OPENSSL_VERSION));
    CHECK(value_of(text, "CUDA") ==
          (*GPUNBD_TEST_CUDA == 0 ? "without: no cuda:N devices" : GPUNBD_TEST_CUDA));
}

TEST_CASE("--version --verbose: prints the path of the program and of installed files only") {
    const std::string text = build_text();
    const std::string program = value_of(text, "program");
    CHECK(program.substr(program.rfind('/')) == "/config_tests");
    CHECK(value_of(text, "manuals") == "not installed with this program");
    CHECK(value_of(text, "commit") != "");
    CHECK(value_of(text, "build") == GPUNBD_TEST_BUILD);
}

}  // namespace
}  // namespace gpunbd::config
