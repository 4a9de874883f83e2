// STARTTLS in the modes NOTLS, SELECTIVETLS and FORCEDTLS (section "TLS support" of the
// specification), without TLS itself.
#include "protocol/negotiation.hpp"
#include "tests/protocol/handshake.hpp"
#include "tests/test.hpp"

namespace gpunbd::protocol::test {
namespace {

const PlainExportDirectory exports({{.name = "open", .size = 4096},
                                    {.name = "secret", .size = 8192, .tls_required = true}});
constexpr TlsMode all_modes[] = {TlsMode::off, TlsMode::optional, TlsMode::required};

struct Option {
    const char* name;
    std::uint32_t type;
    Bytes data;
};
std::vector<Option> all_options(std::string_view name) {
    return {{"LIST", opt::list, {}},
            {"INFO", opt::info, info_data(name)},
            {"GO", opt::go, info_data(name)},
            {"STRUCTURED_REPLY", opt::structured, {}},
            {"EXTENDED_HEADERS", opt::extended, {}},
            {"LIST_META_CONTEXT", opt::list_meta, meta_data(name, {})},
            {"SET_META_CONTEXT", opt::set_meta, meta_data(name, {"base:allocation"})},
            {"PEEK_EXPORT", opt::peek_export, {}},
            {"an unknown option", 0x7654, {}}};
}

TEST_CASE("NOTLS: STARTTLS is ERR_UNSUP, and no option returns TLS_REQD") {
    Talk talk(exports, TlsMode::off);
    CHECK(talk.ask(opt::starttls) == unsup);
    for (const Option& each : all_options("open")) {
        CAPTURE(each.name);
        Talk other(exports, TlsMode::off);
        CHECK(other.ask(each.type, each.data) != tls_reqd);
    }
}

TEST_CASE("FORCEDTLS: every option except STARTTLS and ABORT returns TLS_REQD") {
    for (const char* name : {"open", "secret", "no-such-export"}) {
        for (const Option& each : all_options(name)) {
            CAPTURE(name);
            CAPTURE(each.name);
            Talk talk(exports, TlsMode::required);
            CHECK(talk.ask(each.type, each.data) == tls_reqd);
            CHECK(talk.next == Next::receive);
            CHECK(talk.ask(opt::starttls) == ack);
        }
    }
    Talk talk(exports, TlsMode::required);
    CHECK(talk.ask(opt::abort) == ack);
    CHECK(talk.next == Next::close);
    CHECK(talk.negotiation.reason().empty());
}

TEST_CASE("FORCEDTLS: EXPORT_NAME closes the connection") {
    for (const char* name : {"", "open", "secret", "no-such-export"}) {
        CAPTURE(name);
        Talk talk(exports, TlsMode::required);
        CHECK(talk.say(option(opt::export_name, text_bytes(name))) == Next::close);
        CHECK(talk.output.empty());
        CHECK_FALSE(talk.negotiation.reason().empty());
    }
}

TEST_CASE("SELECTIVETLS: only INFO and GO of an export that requires TLS return TLS_REQD") {
    for (const std::uint32_t type : {opt::info, opt::go}) {
        CHECK(Talk(exports, TlsMode::optional).ask(type, info_data("open")) == ack);
        CHECK(Talk(exports, TlsMode::optional).ask(type, info_data("")) == ack);
        CHECK(Talk(exports, TlsMode::optional).ask(type, info_data("no-such-export")) == unknown);
        Talk talk(exports, TlsMode::optional);
        CHECK(talk.ask(type, info_data("secret", {0, 1, 2, 3})) == tls_reqd);
        CHECK(answers(talk.output).size() == 1);  // it reveals nothing about the export
    }
    Talk talk(exports, TlsMode::optional);
    CHECK(talk.ask(opt::list_meta, meta_data("open", {})) == ack);
    CHECK(talk.ask(opt::list_meta, meta_data("secret", {})) == unknown);
    CHECK(talk.ask(opt::structured) == ack);
    CHECK(talk.ask(opt::set_meta, meta_data("secret", {"base:allocation"})) == unknown);
    CHECK(talk.ask(opt::set_meta, meta_data("open", {"base:allocation"})) == ack);
}

TEST_CASE("SELECTIVETLS: the default export may require TLS") {
    const PlainExportDirectory only({{.name = "secret", .size = 512, .tls_required = true}});
    Talk talk(only, TlsMode::optional);
    CHECK(talk.ask(opt::go, info_data("")) == tls_reqd);
    CHECK(talk.say(option(opt::export_name)) == Next::close);
}

TEST_CASE("SELECTIVETLS: EXPORT_NAME closes for an export that requires TLS, and serves others") {
    Talk secret(exports, TlsMode::optional);
    CHECK(secret.say(option(opt::export_name, text_bytes("secret"))) == Next::close);
    CHECK(secret.output.empty());
    Talk open(exports, TlsMode::optional);
    CHECK(open.say(option(opt::export_name, text_bytes("open"))) == Next::transmit);
}

TEST_CASE("SELECTIVETLS: LIST hides exports that require TLS from clients without TLS") {
    Talk talk(exports, TlsMode::optional);
    CHECK(talk.listed() == 1);
    talk.enter_tls();
    CHECK(talk.listed() == 2);
}

TEST_CASE("STARTTLS with data and STARTTLS inside TLS are refused") {
    for (const TlsMode mode : {TlsMode::optional, TlsMode::required}) {
        Talk talk(exports, mode);
        CHECK(talk.ask(opt::starttls, text_bytes("x")) == invalid);
        CHECK(talk.ask(opt::starttls, Bytes(max_option_data + 1)) == too_big);
        CHECK(talk.next == Next::receive);
        CHECK(talk.ask(opt::starttls) == ack);
        CHECK(talk.next == Next::start_tls);
        CHECK(to_hex(talk.output) == squeezed("0003e889045565a9 00000005 00000001 00000000"));
        talk.negotiation.enter_tls();
        CHECK(talk.ask(opt::starttls) == invalid);  // inside TLS
        CHECK(talk.next == Next::receive);
    }
}

TEST_CASE("no option returns TLS_REQD inside TLS") {
    for (const TlsMode mode : {TlsMode::optional, TlsMode::required}) {
        for (const char* name : {"open", "secret", "no-such-export"}) {
            for (const Option& each : all_options(name)) {
                CAPTURE(name);
                CAPTURE(each.name);
                Talk talk(exports, mode);
                talk.enter_tls();
                CHECK(talk.ask(each.type, each.data) != tls_reqd);
            }
        }
        Talk talk(exports, mode);
        talk.enter_tls();
        CHECK(talk.say(option(opt::export_name, text_bytes("secret"))) == Next::transmit);
    }
}

TEST_CASE("STARTTLS discards all earlier state") {
    for (const std::uint32_t headers : {opt::structured, opt::extended}) {
        Talk talk(exports, TlsMode::optional);
        REQUIRE(talk.ask(headers) == ack);
        REQUIRE(talk.ask(opt::set_meta, meta_data("open", {"base:allocation"})) == ack);
        REQUIRE(talk.listed() == 1);
        talk.enter_tls();
        CHECK(talk.negotiation.asked().words.empty());
        // Contexts need structured replies, which are discarded too.
        CHECK(talk.ask(opt::set_meta, meta_data("open", {"base:allocation"})) == invalid);
        REQUIRE(talk.ask(opt::go, info_data("open")) == ack);
        CHECK(talk.negotiation.negotiated().headers == Headers::simple);
        CHECK(talk.negotiation.negotiated().contexts.none());
    }
    // An earlier context does not reappear with structured replies.
    Talk talk(exports, TlsMode::optional);
    REQUIRE(talk.ask(opt::structured) == ack);
    REQUIRE(talk.ask(opt::set_meta, meta_data("open", {"base:allocation"})) == ack);
    talk.enter_tls();
    REQUIRE(talk.ask(opt::structured) == ack);
    REQUIRE(talk.ask(opt::go, info_data("open")) == ack);
    CHECK(talk.negotiation.negotiated().contexts.none());
}

TEST_CASE("STARTTLS keeps the client's flags") {
    Talk talk(exports, TlsMode::required);
    talk.enter_tls();
    REQUIRE(talk.say(option(opt::export_name, text_bytes("open"))) == Next::transmit);
    CHECK(talk.output.size() == 10);  // NO_ZEROES
}

TEST_CASE("STARTTLS needs fixed newstyle") {
    Negotiation negotiation(exports, TlsMode::required);
    std::size_t used = 0;
    CHECK(negotiation.feed(joined({hex("00000000"), option(opt::starttls)}), used) == Next::close);
}

TEST_CASE("unencrypted bytes after STARTTLS are a violation") {
    for (const Bytes& behind : {option(opt::list), text_bytes("x"), hex("16030100")}) {
        Talk talk(exports, TlsMode::optional);
        CHECK(talk.say(joined({option(opt::starttls), behind})) == Next::close);
        CHECK(talk.output.empty());  // STARTTLS is not granted
        CHECK(talk.negotiation.reason() == "unencrypted bytes after STARTTLS");
    }
    Talk talk(exports, TlsMode::optional);
    REQUIRE(talk.ask(opt::starttls) == ack);
    CHECK(talk.say(option(opt::list)) == Next::close);  // before the handshake
}

TEST_CASE("STARTTLS does not reset the count of options") {
    Talk talk(exports, TlsMode::optional);
    for (std::uint32_t i = 0; i + 1 < max_options; ++i) REQUIRE(talk.ask(opt::list) == ack);
    talk.enter_tls();
    CHECK(talk.say(option(opt::list)) == Next::close);
}

TEST_CASE("a server that stops refuses STARTTLS, and every option inside TLS") {
    for (const TlsMode mode : all_modes) {
        Talk talk(exports, mode);
        talk.negotiation.shut_down();
        CHECK(talk.ask(opt::starttls) == shutdown);
    }
    Talk talk(exports, TlsMode::required);
    talk.enter_tls();
    talk.negotiation.shut_down();
    CHECK(talk.ask(opt::go, info_data("open")) == shutdown);
    // During the TLS handshake.
    Talk later(exports, TlsMode::required);
    REQUIRE(later.ask(opt::starttls) == ack);
    later.negotiation.shut_down();
    later.negotiation.enter_tls();
    CHECK(later.ask(opt::list) == shutdown);
}

}  // namespace
}  // namespace gpunbd::protocol::test
