#include "server/net/credentials/certificate_folder.hpp"

#include <ctime>

#include "tests/server/net/transport/tls_files.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

TEST_CASE("validity: a server warns of files that expire soon, and logs those that are invalid") {
    constexpr std::time_t from = 1'800'000'000, until = 1'900'000'000;
    const Validity its{"/tls/server-cert.pem", from, until};
    struct Row {
        std::time_t now;
        const char* text;  // empty: none
        bool invalid;
    };
    for (const Row& row :
         {Row{from - 1, "is not valid before 2027-01-15 08:00 UTC, so connections in TLS fail",
              true},
          Row{from, "", false}, Row{until - expires_soon, "", false},
          Row{until - expires_soon + 1, "expires on 2030-03-17 17:46 UTC", false},
          Row{until - 1, "expires on 2030-03-17 17:46 UTC", false},
          Row{until, "expired on 2030-03-17 17:46 UTC, so connections in TLS fail", true}}) {
        CAPTURE(row.now);
        const auto warning = validity_warning(its, row.now);
        REQUIRE(warning.has_value() == (*row.text != '\0'));
        CHECK(why_invalid(its, row.now).empty() == !row.invalid);
        if (!warning) continue;
        CHECK(warning->text.starts_with(its.path + ": " + row.text));
        CHECK(warning->invalid == row.invalid);
    }
}

TEST_CASE("validity: of the files that a server uses") {
    const TlsFiles files;
    files.issue("long", {.common_name = "x", .from = -7200, .until = 9000});
    files.issue("server", {.common_name = "x", .from = -50, .until = 5000});
    // A chain is valid while all of it is; one authority is enough.
    files.write("server-cert.pem", files.read("server-cert.pem") + files.read("long-cert.pem"));
    files.write("ca-cert.pem", files.read("ca-cert.pem") + files.read("long-cert.pem"));
    files.revoke("long");
    const auto of = [&](config::TlsMode mode, bool verify, bool admin) {
        config::Options options;
        options.tls = {mode, files.folder(), verify, ""};
        options.admin.tcp.tls = admin;
        return server_validities(options);
    };
    using config::TlsMode;
    CHECK(of(TlsMode::off, true, false).empty());
    CHECK(of(TlsMode::optional, false, false).size() == 1);
    CHECK(of(TlsMode::off, false, true).size() == 3);
    const std::vector<Validity> all = of(TlsMode::required, true, false);
    REQUIRE(all.size() == 3);
    const auto length = [](const Validity& its) { return its.until - its.from; };
    CHECK(all[0].path == files.path("server-cert.pem"));
    CHECK(length(all[0]) / 100 == 50);  // 5,050 s and what making the certificate takes
    CHECK(all[1].path == files.path("ca-cert.pem"));
    CHECK(length(all[1]) / 1000 == 16);
    CHECK(all[2].path == files.path("ca-crl.pem"));
}

}  // namespace
}  // namespace gpunbd::server::test
