#include "protocol/negotiation.hpp"

#include "protocol/bytes.hpp"
#include "tests/protocol/handshake.hpp"
#include "tests/test.hpp"

namespace gpunbd::protocol::test {
namespace {

using namespace std::string_view_literals;

const PlainExportDirectory exports;

Bytes after_flags(std::initializer_list<Bytes> parts) {
    return joined({wire::client_flags(), joined(parts)});
}

// Returns the type of the reply to the last option. Checks that every earlier option has been
// answered too.
std::uint32_t last_answer(const Outcome& outcome) {
    const auto all = answers(outcome.output);
    REQUIRE_FALSE(all.empty());
    return all.back().type;
}

TEST_CASE("the greeting is that of fixed newstyle") {
    CHECK(to_hex(Negotiation(exports).greeting()) ==
          squeezed("4e42444d41474943 49484156454f5054 0003"));
}

TEST_CASE("client flags are validated") {
    constexpr std::pair<const char*, Next> rows[] = {
        {"00000000", Next::receive}, {"00000001", Next::receive}, {"00000002", Next::receive},
        {"00000003", Next::receive}, {"00000004", Next::close},   {"00000007", Next::close},
        {"00010000", Next::close},   {"80000003", Next::close},   {"ffffffff", Next::close},
    };
    for (const auto& [flags, next] : rows) {
        CAPTURE(flags);
        const Outcome outcome = run_all_ways(exports, hex(flags));
        CHECK(outcome.next == next);
        CHECK(outcome.output.empty());
        CHECK(outcome.reason.empty() == (next == Next::receive));
    }
    CHECK(run(exports, hex("000000")).next == Next::receive);
    Negotiation negotiation(exports);
    std::size_t used = 1;
    CHECK(negotiation.feed({}, used) == Next::receive);
    CHECK(used == 0);
    CHECK(negotiation.take_output().empty());
}

// Complete replies as encoded bytes.
TEST_CASE("options and their replies, to the byte") {
    struct Row {
        const char* name;
        Bytes input;
        Next next;
        const char* output;
    };
    const Row rows[] = {
        {"ABORT", option(opt::abort), Next::close, "0003e889045565a9 00000002 00000001 00000000"},
        {"LIST", option(opt::list), Next::receive,
         "0003e889045565a9 00000003 00000002 0000000e 00000004 6469736b 61206469736b"
         "0003e889045565a9 00000003 00000002 00000006 00000002 726f"
         "0003e889045565a9 00000003 00000002 0000000a 00000006 636f61727365"
         "0003e889045565a9 00000003 00000001 00000000"},
        {"INFO", option(opt::info, info_data("disk")), Next::receive,
         "0003e889045565a9 00000006 00000003 0000000c 0000 0000000010000000 0d6d"
         "0003e889045565a9 00000006 00000001 00000000"},
        {"INFO of everything", option(opt::info, info_data("disk", {0, 1, 2, 3})), Next::receive,
         "0003e889045565a9 00000006 00000003 0000000c 0000 0000000010000000 0d6d"
         "0003e889045565a9 00000006 00000003 00000006 0001 6469736b"
         "0003e889045565a9 00000006 00000003 00000008 0002 61206469736b"
         "0003e889045565a9 00000006 00000003 0000000e 0003 00000001 00001000 02000000"
         "0003e889045565a9 00000006 00000001 00000000"},
        {"INFO, unknown and repeated requests",
         option(opt::info, info_data("disk", {4, 0xffff, 1, 1, 1, 0, 0})), Next::receive,
         "0003e889045565a9 00000006 00000003 0000000c 0000 0000000010000000 0d6d"
         "0003e889045565a9 00000006 00000003 00000006 0001 6469736b"
         "0003e889045565a9 00000006 00000001 00000000"},
        {"INFO volunteers block sizes that are not the default",
         option(opt::info, info_data("coarse")), Next::receive,
         "0003e889045565a9 00000006 00000003 0000000c 0000 0000000000100000 0d6d"
         "0003e889045565a9 00000006 00000003 0000000e 0003 00000200 00002000 00100000"
         "0003e889045565a9 00000006 00000001 00000000"},
        {"GO to the default export", option(opt::go, info_data("", {1})), Next::transmit,
         "0003e889045565a9 00000007 00000003 0000000c 0000 0000000010000000 0d6d"
         "0003e889045565a9 00000007 00000003 00000006 0001 6469736b"
         "0003e889045565a9 00000007 00000001 00000000"},
        {"SEND_DF with structured replies",
         joined({option(opt::structured), option(opt::go, info_data("disk"))}), Next::transmit,
         "0003e889045565a9 00000008 00000001 00000000"
         "0003e889045565a9 00000007 00000003 0000000c 0000 0000000010000000 0ded"
         "0003e889045565a9 00000007 00000001 00000000"},
        {"EXTENDED_HEADERS, SEND_DF and BLOCK_STATUS_PAYLOAD with them",
         joined({option(opt::extended), option(opt::go, info_data("disk"))}), Next::transmit,
         "0003e889045565a9 0000000b 00000001 00000000"
         "0003e889045565a9 00000007 00000003 0000000c 0000 0000000010000000 1ded"
         "0003e889045565a9 00000007 00000001 00000000"},
        {"EXPORT_NAME of the default", option(opt::export_name), Next::transmit,
         "0000000010000000 0d6d"},
        {"SET_META_CONTEXT",
         joined({option(opt::structured),
                 option(opt::set_meta, meta_data("disk", {"base:allocation"}))}),
         Next::receive,
         "0003e889045565a9 00000008 00000001 00000000"
         "0003e889045565a9 0000000a 00000004 00000013 00000000 626173653a616c6c6f636174696f6e"
         "0003e889045565a9 0000000a 00000001 00000000"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.name);
        const Bytes input = after_flags({row.input});
        const Outcome outcome = run_all_ways(exports, input);
        CHECK(outcome.next == row.next);
        CHECK(outcome.used == input.size());
        CHECK(to_hex(outcome.output) == squeezed(row.output));
        CHECK(outcome.reason.empty());
    }
}

TEST_CASE("a refused option does not affect the next one") {
    const Bytes name_4097 = text_bytes(std::string(max_string + 1, 'x'));
    const Bytes long_data(max_option_data + 1);
    struct Row {
        const char* name;
        std::uint32_t option;
        Bytes data;
        std::uint32_t error;
    };
    const Row rows[] = {
        {"PEEK_EXPORT", opt::peek_export, {}, unsup},
        {"STARTTLS", opt::starttls, {}, unsup},
        {"option 0", 0, {}, unsup},
        {"option 12", 12, {}, unsup},
        {"option 2^32 - 1", UINT32_MAX, {}, unsup},
        {"unknown, with data", 77, hex("00010203"), unsup},
        {"unknown, data that looks like an option", 77, option(opt::abort), unsup},
        {"unknown, long", 77, long_data, unsup},
        {"unknown, as long as is drained", 77, Bytes(max_drained_option), unsup},

        {"LIST with data", opt::list, hex("00"), invalid},
        {"LIST, long", opt::list, long_data, too_big},
        {"STRUCTURED_REPLY with data", opt::structured, hex("00"), invalid},
        {"STRUCTURED_REPLY, long", opt::structured, long_data, too_big},
        {"EXTENDED_HEADERS with data", opt::extended, hex("00"), invalid},
        {"EXTENDED_HEADERS, long", opt::extended, long_data, too_big},

        {"INFO of an unknown export", opt::info, info_data("nowhere"), unknown},
        {"INFO of the longest name", opt::info, info_data(std::string(max_string, 'x')), unknown},
        {"INFO, no data", opt::info, {}, invalid},
        {"INFO, one byte short of a length", opt::info, hex("000000"), invalid},
        {"INFO, no count", opt::info, hex("00000000"), invalid},
        {"INFO, half a count", opt::info, hex("00000000 00"), invalid},
        {"INFO, name one longer than the data", opt::info, hex("00000003 6469 0000"), invalid},
        {"INFO, name into the count", opt::info, hex("00000001 0000"), invalid},
        {"INFO, name length 2^32 - 1", opt::info, hex("ffffffff 0000"), invalid},
        {"INFO, name length 2^32 - 6", opt::info, hex("fffffffa 6469736b 0000"), invalid},
        {"INFO, name length 2^31", opt::info, hex("80000000 6469736b 0000"), invalid},
        {"INFO, a request missing", opt::info, hex("00000000 0001"), invalid},
        {"INFO, half a request", opt::info, hex("00000000 0001 00"), invalid},
        {"INFO, 65535 requests announced", opt::info, hex("00000000 ffff 0001"), invalid},
        {"INFO, a byte left over", opt::info, hex("00000000 0000 00"), invalid},
        {"INFO, a request left over", opt::info, hex("00000000 0001 0001 0001"), invalid},
        {"INFO, name with NUL", opt::info, info_data("di\0sk"sv), invalid},
        {"INFO, name not UTF-8", opt::info, info_data("disk\xff"), invalid},
        {"INFO, name over 4096 bytes", opt::info,
         joined({be32(max_string + 1), name_4097, be16(0)}), invalid},
        {"INFO, long", opt::info, long_data, too_big},
        {"INFO, as long as is kept", opt::info, Bytes(max_option_data), invalid},
        {"GO to an unknown export", opt::go, info_data("nowhere"), unknown},

        {"LIST_META_CONTEXT, no data", opt::list_meta, {}, invalid},
        {"LIST_META_CONTEXT, no count", opt::list_meta, string_field("disk"), invalid},
        {"LIST_META_CONTEXT, name overflow", opt::list_meta, hex("fffffffc 00000000"), invalid},
        {"LIST_META_CONTEXT, query missing", opt::list_meta, hex("00000000 00000001"), invalid},
        {"LIST_META_CONTEXT, 2^32 - 1 queries", opt::list_meta,
         joined({hex("00000000 ffffffff"), string_field("base:")}), invalid},
        {"LIST_META_CONTEXT, query one too long", opt::list_meta,
         hex("00000000 00000001 00000003 6162"), invalid},
        {"LIST_META_CONTEXT, query overflow", opt::list_meta,
         hex("00000000 00000001 ffffffff 6162"), invalid},
        {"LIST_META_CONTEXT, query not UTF-8", opt::list_meta, meta_data("", {"base:\x80"}),
         invalid},
        {"LIST_META_CONTEXT, query over 4096 bytes", opt::list_meta,
         meta_data("", {std::string(max_string + 1, 'x')}), invalid},
        {"LIST_META_CONTEXT, a byte left over", opt::list_meta, hex("00000000 00000000 00"),
         invalid},
        {"LIST_META_CONTEXT of an unknown export", opt::list_meta, meta_data("nowhere", {}),
         unknown},
        {"LIST_META_CONTEXT, long", opt::list_meta, long_data, too_big},

        {"SET_META_CONTEXT without structured replies", opt::set_meta,
         meta_data("disk", {"base:allocation"}), invalid},
    };
    for (const Row& row : rows) {
        CAPTURE(row.name);
        const Bytes input = after_flags({option(row.option, row.data), option(opt::structured)});
        const Outcome outcome = run_all_ways(exports, input);
        CHECK(outcome.next == Next::receive);
        const auto all = answers(outcome.output);
        REQUIRE(all.size() == 2);
        CHECK(all[0].option == row.option);
        CHECK(all[0].type == row.error);
        CHECK(all[0].data.size() <= 256);
        CHECK(all[1].option == opt::structured);
        CHECK(all[1].type == ack);
    }
}

TEST_CASE("invalid handshakes close the connection") {
    const Bytes list = option(opt::list);
    const std::pair<const char*, Bytes> rows[] = {
        {"no option magic",
         joined({wire::client_flags(), hex("0003e889045565a9 00000003 00000000")})},
        {"a request instead of an option",
         joined({wire::client_flags(), hex("25609513 0000 0000 0000000000000001 0000000000000000 "
                                           "00001000")})},
        {"option longer than is drained", after_flags({option_header(77, max_drained_option + 1)})},
        {"a 4 GiB option", after_flags({option_header(opt::info, UINT32_MAX)})},
        {"a 4 GiB ABORT", after_flags({option_header(opt::abort, UINT32_MAX)})},
        {"EXPORT_NAME of an unknown export",
         after_flags({option(opt::export_name, text_bytes("nowhere"))})},
        {"EXPORT_NAME with NUL", after_flags({option(opt::export_name, hex("6400"))})},
        {"EXPORT_NAME not UTF-8", after_flags({option(opt::export_name, hex("ff"))})},
        {"EXPORT_NAME, longest, unknown",
         after_flags({option(opt::export_name, text_bytes(std::string(max_string, 'x')))})},
        {"EXPORT_NAME too long", after_flags({option_header(opt::export_name, max_string + 1)})},
        {"EXPORT_NAME of 4 GiB", after_flags({option_header(opt::export_name, UINT32_MAX)})},
        {"LIST without fixed newstyle", joined({hex("00000000"), list})},
        {"LIST with NO_ZEROES alone", joined({hex("00000002"), list})},
        {"ABORT without fixed newstyle", joined({hex("00000000"), option(opt::abort)})},
        {"GO without fixed newstyle",
         joined({hex("00000000"), option(opt::go, info_data("disk"))})},
    };
    for (const auto& [name, input] : rows) {
        CAPTURE(name);
        const Outcome outcome = run_all_ways(exports, joined({input, list}));
        CHECK(outcome.next == Next::close);
        CHECK(outcome.used <= input.size());
        CHECK(outcome.output.empty());
        CHECK_FALSE(outcome.reason.empty());
        CHECK(outcome.reason.size() < 200);
    }
}

TEST_CASE("ABORT ignores its data, long or short") {
    for (const std::size_t length : {1U, 100U, max_option_data + 1, max_drained_option}) {
        CAPTURE(length);
        const Outcome outcome =
            run_all_ways(exports, after_flags({option(opt::abort, Bytes(length))}));
        CHECK(outcome.next == Next::close);
        CHECK(last_answer(outcome) == ack);
        CHECK(outcome.reason.empty());
    }
}

TEST_CASE("EXPORT_NAME pads with zeroes unless NO_ZEROES was negotiated, and GO never does") {
    struct Row {
        const char* flags;
        std::size_t padding;
    };
    for (const Row row :
         {Row{"00000000", 124}, Row{"00000001", 124}, Row{"00000002", 0}, Row{"00000003", 0}}) {
        CAPTURE(row.flags);
        const Outcome outcome = run_all_ways(
            exports, joined({hex(row.flags), option(opt::export_name, text_bytes("ro"))}));
        CHECK(outcome.next == Next::transmit);
        CHECK(to_hex(outcome.output) ==
              to_hex(joined({hex("0000000000001000 050f"), Bytes(row.padding)})));
        CHECK(outcome.negotiated.export_info.name == "ro");
        CHECK(outcome.negotiated.headers == Headers::simple);
        CHECK(outcome.negotiated.contexts.none());
    }
    // No zeroes follow the reply to GO.
    const Outcome go =
        run_all_ways(exports, joined({hex("00000001"), option(opt::go, info_data("coarse", {3}))}));
    REQUIRE(go.next == Next::transmit);
    CHECK(last_answer(go) == ack);
    const ExportInfo& info = go.negotiated.export_info;
    CHECK(info.name == "coarse");
    CHECK(info.size == 1 << 20);
    CHECK(info.minimum_block == 512);
    CHECK(info.maximum_payload == 1 << 20);
}

TEST_CASE("bytes after the handshake are left for the transmission phase") {
    const Bytes request = hex("25609513 0000 0000 0000000000000001 0000000000000000 00001000");
    for (const Bytes& last : {option(opt::go, info_data("disk")), option(opt::export_name)}) {
        const Bytes handshake = after_flags({option(opt::structured), last});
        const Outcome outcome = run_all_ways(exports, joined({handshake, request}));
        CHECK(outcome.next == Next::transmit);
        CHECK(outcome.used == handshake.size());
    }
}

TEST_CASE("after the handshake has ended, no more input is consumed") {
    const std::pair<Bytes, Next> rows[] = {
        {hex("ffffffff"), Next::close},
        {after_flags({option(opt::abort)}), Next::close},
        {after_flags({option(opt::export_name)}), Next::transmit}};
    for (const auto& [input, next] : rows) {
        Negotiation negotiation(exports);
        std::size_t used = 0;
        REQUIRE(negotiation.feed(input, used) == next);
        CHECK(used == input.size());
        negotiation.take_output();
        CHECK(negotiation.feed(option(opt::list), used) == next);
        CHECK(used == 0);
        CHECK(negotiation.take_output().empty());
    }
}

TEST_CASE("meta contexts: a query selects the matching contexts") {
    constexpr MetaContexts base = MetaContext::base_allocation;
    constexpr MetaContexts device = MetaContext::device;
    constexpr MetaContexts instance = MetaContext::instance;
    constexpr MetaContexts cached = MetaContext::cached;
    const std::string id = "0123456789abcdef0123456789abcdef";
    const std::string named = "gpunbd:instance=" + id;
    MetaContexts both = base;
    both.add(MetaContext::device);
    MetaContexts three = both;
    three.add(MetaContext::instance);
    MetaContexts ours = device;
    ours.add(MetaContext::instance);
    MetaContexts of_cache = device;
    of_cache.add(MetaContext::cached);
    constexpr MetaContexts none;
    struct Row {
        const char* name;
        Bytes data;
        MetaContexts listed;
        MetaContexts set;
    };
    const Row rows[] = {
        {"no query", meta_data("disk", {}), three, none},
        {"no query, and contents without an id", meta_data("ro", {}), both, none},
        {"the wildcard", meta_data("disk", {"base:"}), base, none},
        {"the context", meta_data("disk", {"base:allocation"}), base, base},
        {"the context twice", meta_data("disk", {"base:allocation", "base:allocation"}), base,
         base},
        {"the context among others",
         meta_data("disk", {"qemu:dirty-bitmap:x", "base:allocation", "base:", "x-a:b"}), base,
         base},
        {"our wildcard", meta_data("disk", {"gpunbd:"}), ours, none},
        {"the wildcard of gpunbd, and contents without an id", meta_data("ro", {"gpunbd:"}), device,
         none},
        {"the current contents", meta_data("disk", {named}), instance, instance},
        {"whichever contents", meta_data("disk", {"gpunbd:instance"}), instance, none},
        {"any id, and contents without an id", meta_data("ro", {"gpunbd:instance"}), none, none},
        {"contents of another export", meta_data("ro", {named}), none, none},
        {"contents without an id, by it", meta_data("ro", {"gpunbd:instance="}), none, none},
        {"other contents", meta_data("disk", {"gpunbd:instance=" + std::string(32, '0')}), none,
         none},
        {"an id cut short", meta_data("disk", {named.substr(0, named.size() - 1)}), none, none},
        {"an id with an extra digit", meta_data("disk", {named + "0"}), none, none},
        {"an id in another case",
         meta_data("disk", {"gpunbd:instance=0123456789ABCDEF0123456789ABCDEF"}), none, none},
        {"the contents on the default export", meta_data("", {named}), instance, instance},
        {"all three", meta_data("disk", {named, "gpunbd:device", "base:allocation"}), three, three},
        {"our context", meta_data("disk", {"gpunbd:device"}), device, device},
        {"both contexts", meta_data("disk", {"gpunbd:device", "base:allocation"}), both, both},
        {"one by its wildcard", meta_data("disk", {"gpunbd:", "base:allocation"}), three, base},
        {"both wildcards", meta_data("disk", {"gpunbd:", "base:"}), three, none},
        {"what is in memory", meta_data("coarse", {"gpunbd:cached"}), cached, cached},
        {"the same, without a cache", meta_data("disk", {"gpunbd:cached"}), none, none},
        {"our wildcard, and a cache", meta_data("coarse", {"gpunbd:"}), of_cache, none},
        {"an unknown leaf of gpunbd", meta_data("disk", {"gpunbd:devices"}), none, none},
        {"on the default export", meta_data("", {"base:allocation"}), base, base},
        {"an unknown leaf", meta_data("disk", {"base:allocated"}), none, none},
        {"a longer leaf", meta_data("disk", {"base:allocation2"}), none, none},
        {"an unknown namespace", meta_data("disk", {"qemu:", "nbd-server:x"}), none, none},
        {"no namespace", meta_data("disk", {"allocation", "device"}), none, none},
        {"a namespace cut short", meta_data("disk", {"base", "gpunbd"}), none, none},
        {"another case", meta_data("disk", {"BASE:allocation"}), none, none},
        {"an empty query", meta_data("disk", {""}), none, none},
        {"the longest query", meta_data("disk", {std::string(max_string, 'x')}), none, none},
    };
    // The replies for these contexts. `ids`: with their ids, otherwise 0.
    const auto expected = [&](MetaContexts contexts, bool ids) {
        std::vector<Bytes> data;
        for (const MetaContext context : all_contexts) {
            if (!contexts.has(context)) continue;
            data.push_back(
                joined({be32(ids ? id_of(context) : 0), text_bytes(full_name_of(context, id))}));
        }
        return data;
    };
    const auto context_replies = [](const Outcome& outcome, std::uint32_t option) {
        std::vector<Bytes> data;
        auto all = answers(outcome.output);
        REQUIRE(all.back().type == ack);
        all.pop_back();
        for (const OptionAnswer& answer : all) {
            if (answer.option != option || answer.type == ack) continue;
            CHECK(answer.type == static_cast<std::uint32_t>(OptionReply::meta_context));
            data.push_back(answer.data);
        }
        return data;
    };
    for (const Row& row : rows) {
        CAPTURE(row.name);
        CHECK(
            context_replies(run_all_ways(exports, after_flags({option(opt::list_meta, row.data)})),
                            opt::list_meta) == expected(row.listed, false));
        CHECK(context_replies(run_all_ways(exports, after_flags({option(opt::structured),
                                                                 option(opt::set_meta, row.data)})),
                              opt::set_meta) == expected(row.set, true));
    }
}

TEST_CASE("meta contexts: one snapshot is selected, and as many as fit are listed") {
    const PlainExportDirectory two(
        std::vector<ExportInfo>{{.name = "disk", .related = {"monday", "tuesday"}}, {.name = "x"}});
    struct Row {
        const char* name;
        Bytes data;
        std::vector<std::string> listed;
        std::string set;  // empty: none
    };
    const Row rows[] = {
        {"no query", meta_data("disk", {}), {"monday", "tuesday"}, ""},
        {"our wildcard", meta_data("disk", {"gpunbd:"}), {"monday", "tuesday"}, ""},
        {"all snapshots", meta_data("disk", {"gpunbd:dirty"}), {"monday", "tuesday"}, ""},
        {"one", meta_data("disk", {"gpunbd:dirty/tuesday"}), {"tuesday"}, "tuesday"},
        {"two",
         meta_data("disk", {"gpunbd:dirty/tuesday", "gpunbd:dirty/monday"}),
         {"monday", "tuesday"},
         "tuesday"},
        {"an unknown one", meta_data("disk", {"gpunbd:dirty/"}), {}, ""},
        {"of another export", meta_data("x", {"gpunbd:dirty/monday"}), {}, ""},
    };
    const auto names = [](const Outcome& outcome, std::uint32_t option) {
        std::vector<std::string> out;
        for (const OptionAnswer& answer : answers(outcome.output)) {
            if (answer.option != option || answer.data.size() < 4) continue;
            const std::string name(reinterpret_cast<const char*>(answer.data.data()) + 4,
                                   answer.data.size() - 4);
            if (name.starts_with("gpunbd:dirty/")) out.push_back(name.substr(13));
        }
        return out;
    };
    for (const Row& row : rows) {
        CAPTURE(row.name);
        CHECK(names(run_all_ways(two, after_flags({option(opt::list_meta, row.data)})),
                    opt::list_meta) == row.listed);
        const Outcome set = run_all_ways(
            two, after_flags({option(opt::structured), option(opt::set_meta, row.data)}));
        CHECK(names(set, opt::set_meta) ==
              (row.set.empty() ? std::vector<std::string>() : std::vector<std::string>{row.set}));
    }
    std::vector<std::string> many;
    for (int i = 0; i != 100; ++i) many.push_back(std::string(1000, 'n') + std::to_string(i));
    const PlainExportDirectory full(std::vector<ExportInfo>{{.name = "disk", .related = many}});
    const Bytes last = meta_data("disk", {"gpunbd:dirty/" + many.back()});
    const Outcome listed =
        run_all_ways(full, after_flags({option(opt::list_meta, meta_data("disk", {}))}));
    CHECK(names(listed, opt::list_meta).size() == 8);
    CHECK(names(run_all_ways(full,
                             after_flags({option(opt::structured), option(opt::set_meta, last)})),
                opt::set_meta)
              .size() == 1);
}

TEST_CASE("meta contexts: GO fails if the contents were replaced after SET_META_CONTEXT") {
    const std::string known = "gpunbd:instance=" + std::string(32, 'a');
    const Bytes go = option(opt::go, info_data("disk"));
    struct Row {
        const char* name;
        Bytes asked;
        Bytes last;
        Next next;
    };
    const Row rows[] = {
        {"by GO", meta_data("disk", {known}), go, Next::receive},
        {"by EXPORT_NAME", meta_data("disk", {known}), option(opt::export_name, text_bytes("disk")),
         Next::close},
        {"the snapshot, by GO", meta_data("disk", {"gpunbd:dirty/before"}), go, Next::receive},
        {"the snapshot, by EXPORT_NAME", meta_data("disk", {"gpunbd:dirty/before"}),
         option(opt::export_name, text_bytes("disk")), Next::close},
        {"not asked for", meta_data("disk", {"base:allocation"}), go, Next::transmit},
        {"for another name", meta_data("disk", {known}), option(opt::go, info_data("")),
         Next::transmit},
    };
    for (const bool replaced : {true, false}) {
        for (const Row& row : rows) {
            CAPTURE(row.name);
            PlainExportDirectory changing(std::vector<ExportInfo>{{.name = "disk",
                                                                   .instance = std::string(32, 'a'),
                                                                   .related = {"before"},
                                                                   .size = 4096}});
            Talk client(changing);
            client.say(joined({option(opt::structured), option(opt::set_meta, row.asked)}));
            if (replaced) {
                changing.exports[0].instance = std::string(32, 'b');
                changing.exports[0].related = {"later"};
            }
            CHECK(client.say(row.last) == (replaced ? row.next : Next::transmit));
        }
    }
}

// The headers and the meta context that a client has negotiated.
struct Selected {
    // A SET_META_CONTEXT replaces the set, even if it fails.
    void set(std::optional<std::string> name) {
        subject = headers == Headers::simple ? std::nullopt : std::move(name);
    }

    Headers headers = Headers::simple;
    std::optional<std::string> subject = {};
};

TEST_CASE("headers and meta contexts: each sequence of three options, against a model") {
    const auto set_for = [](std::string_view name, const std::vector<std::string_view>& queries) {
        return option(opt::set_meta, meta_data(name, queries));
    };
    const auto changes_nothing = [](Selected&) {};
    const auto clears = [](Selected& its) { its.set({}); };
    const struct {
        const char* name;
        Bytes input;
        std::function<void(Selected&)> apply;
    } steps[] = {
        {"nothing", {}, changes_nothing},
        {"structured", option(opt::structured),
         [](Selected& its) {
             if (its.headers == Headers::simple) its.headers = Headers::structured;
         }},
        {"extended", option(opt::extended), [](Selected& its) { its.headers = Headers::extended; }},
        {"extended, refused", option(opt::extended, hex("00")), changes_nothing},
        {"a set", set_for("disk", {"base:allocation"}), [](Selected& its) { its.set("disk"); }},
        {"a set for the default export", set_for("", {"base:allocation"}),
         [](Selected& its) { its.set(""); }},
        {"a set for another export", set_for("ro", {"base:allocation"}),
         [](Selected& its) { its.set("ro"); }},
        {"a set for an unknown export", set_for("nowhere", {"base:allocation"}), clears},
        {"a set of nothing", set_for("disk", {}), clears},
        {"a set of a wildcard", set_for("disk", {"base:"}), clears},
        {"a malformed set", option(opt::set_meta, hex("ffffffff")), clears},
        {"a set cut after its match",
         option(opt::set_meta,
                joined({string_field("disk"), be32(2), string_field("base:allocation")})),
         clears},
        {"a list", option(opt::list_meta, meta_data("disk", {})), changes_nothing},
        {"a list for another export", option(opt::list_meta, meta_data("ro", {})), changes_nothing},
        {"a failed GO", option(opt::go, info_data("nowhere")), changes_nothing},
    };
    const auto check = [](const Bytes& input, const Selected& model, std::string_view name,
                          std::uint32_t last) {
        CAPTURE(name);
        CAPTURE(last);
        const Bytes end = option(last, last == opt::go ? info_data(name) : text_bytes(name));
        const Outcome outcome = run(exports, after_flags({input, end}));
        REQUIRE(outcome.next == Next::transmit);
        CHECK(outcome.negotiated.headers == model.headers);
        CHECK(outcome.negotiated.contexts ==
              (model.subject == name ? MetaContext::base_allocation : MetaContexts()));
    };
    for (const auto& first : steps) {
        for (const auto& second : steps) {
            for (const auto& third : steps) {
                CAPTURE(first.name);
                CAPTURE(second.name);
                CAPTURE(third.name);
                Selected model;
                for (const auto* each : {&first, &second, &third}) each->apply(model);
                const Bytes input = joined({first.input, second.input, third.input});
                check(input, model, "disk", opt::go);
                check(input, model, "", opt::go);
                if (model.headers == Headers::extended) continue;  // EXPORT_NAME closes
                check(input, model, "disk", opt::export_name);
            }
        }
    }
    const Bytes too_long = option(opt::set_meta, Bytes(max_option_data + 1));
    check(joined({option(opt::structured), set_for("disk", {"base:allocation"}), too_long}),
          {.headers = Headers::structured}, "disk", opt::go);
}

TEST_CASE("after EXTENDED_HEADERS, STRUCTURED_REPLY fails and EXPORT_NAME closes without a reply") {
    CHECK(last_answer(run_all_ways(
              exports, after_flags({option(opt::extended), option(opt::structured)}))) ==
          ext_header_reqd);
    const Outcome outcome = run_all_ways(
        exports,
        after_flags({option(opt::extended), option(opt::export_name, text_bytes("disk"))}));
    CHECK(outcome.next == Next::close);
    CHECK(outcome.reason == "EXPORT_NAME: after EXTENDED_HEADERS only GO is permitted");
    CHECK(answers(outcome.output).size() == 1);  // the reply to EXTENDED_HEADERS
}

TEST_CASE("while stopping, only ABORT is answered") {
    for (const std::uint32_t type : {opt::list, opt::starttls, opt::info, opt::go, opt::structured,
                                     opt::list_meta, opt::set_meta, opt::extended, 77U}) {
        for (const Bytes& data : {Bytes{}, info_data("disk"), Bytes(max_option_data + 1)}) {
            CAPTURE(type);
            const Outcome outcome =
                run_all_ways(exports, after_flags({option(type, data), option(opt::abort)}), true);
            CHECK(outcome.next == Next::close);
            const auto all = answers(outcome.output);
            REQUIRE(all.size() == 2);
            CHECK(all[0].type == shutdown);
            CHECK(all[1].type == ack);
        }
    }
    const Outcome outcome =
        run_all_ways(exports, after_flags({option(opt::export_name, text_bytes("disk"))}), true);
    CHECK(outcome.next == Next::close);
    CHECK(outcome.output.empty());
    CHECK_FALSE(outcome.reason.empty());
}

TEST_CASE("a stop in the middle of an option refuses that option") {
    const Bytes input = after_flags({option(opt::go, info_data("disk"))});
    for (std::size_t cut = 0; cut < input.size(); ++cut) {
        CAPTURE(cut);
        Negotiation negotiation(exports);
        std::size_t used = 0;
        REQUIRE(negotiation.feed(std::span(input).first(cut), used) == Next::receive);
        negotiation.shut_down();
        CHECK(negotiation.feed(std::span(input).subspan(cut), used) == Next::receive);
        const auto all = answers(negotiation.take_output());
        REQUIRE(all.size() == 1);
        CHECK(all[0].type == shutdown);
    }
}

TEST_CASE("the number of options is limited") {
    Bytes input = wire::client_flags();
    for (std::uint32_t i = 0; i < max_options; ++i) input = joined({input, option(77)});
    CHECK(run(exports, input).next == Next::receive);
    CHECK(answers(run(exports, input).output).size() == max_options);

    const Outcome one_more = run(exports, joined({input, option(opt::go, info_data("disk"))}));
    CHECK(one_more.next == Next::close);
    CHECK_FALSE(one_more.reason.empty());
    CHECK(answers(one_more.output).size() == max_options);
}

TEST_CASE("the longest names and descriptions fit their replies") {
    const std::string longest(max_string, 'n');
    const PlainExportDirectory directory(
        {{.name = longest, .description = std::string(max_string, 'd'), .size = 1}});
    const Outcome outcome = run_all_ways(
        directory, after_flags({option(opt::list), option(opt::structured),
                                option(opt::set_meta, meta_data(longest, {"base:allocation"})),
                                option(opt::go, info_data(longest, {1, 2, 3}))}));
    REQUIRE(outcome.next == Next::transmit);
    CHECK(outcome.negotiated.contexts.has(MetaContext::base_allocation));
    const auto all = answers(outcome.output);
    REQUIRE(all.size() == 10);
    CHECK(all[0].data.size() == 4 + 2 * max_string);
    CHECK(to_hex(std::span(all[0].data).first(4)) == "00001000");
    CHECK(all[6].data.size() == 2 + max_string);
    CHECK(all[7].data.size() == 2 + max_string);
}

// Exports named "export 17" etc., with the longest possible description.
std::vector<ExportInfo> many_exports(std::size_t count) {
    std::vector<ExportInfo> many(count);
    for (std::size_t i = 0; i != count; ++i) {
        many[i].name = "export " + std::to_string(i);
        many[i].description = std::string(max_string, 'd');
    }
    return many;
}

std::string name_in(const OptionAnswer& server) {
    const auto length = load_be<std::uint32_t>(server.data.data());
    return {reinterpret_cast<const char*>(server.data.data()) + sizeof length, length};
}

TEST_CASE("the reply to LIST is produced in parts, with at most one in memory") {
    const PlainExportDirectory directory(many_exports(1000));
    Negotiation negotiation(directory);
    Bytes output;
    std::size_t used = 0;
    const Bytes input = after_flags({option(opt::list), option(opt::list)});
    Bytes part;
    std::size_t parts = 0;
    std::size_t taken = 0;
    for (Next next = Next::more; next == Next::more; ++parts) {
        next = negotiation.feed(std::span(input).subspan(taken), used);
        taken += used;
        part = negotiation.take_output();
        CHECK(part.capacity() <= 2 * Negotiation::max_output);
        CHECK(part.size() <= Negotiation::max_output);
        output.insert(output.end(), part.begin(), part.end());
    }
    CHECK(taken == input.size());
    CHECK(parts >= 2 * 1000 * std::size_t{max_string} / Negotiation::max_output);
    const auto all = answers(output);
    REQUIRE(all.size() == 2 * 1001);
    for (std::size_t i = 0; i != 1000; ++i) {
        CHECK(name_in(all[i]) == "export " + std::to_string(i));
        CHECK(name_in(all[1001 + i]) == "export " + std::to_string(i));
    }
    CHECK(all[1000].type == ack);
    CHECK(all[2001].type == ack);
}

TEST_CASE("a feed answers one option, so that other sessions get their turn") {
    Negotiation negotiation(exports);
    const Bytes input = after_flags(
        {option(opt::info, info_data("disk", {1, 2, 3})), option(opt::structured), option(77)});
    std::size_t taken = 0;
    for (int left = 2; left >= 0; --left) {
        std::size_t used = 0;
        CHECK(negotiation.feed(std::span(input).subspan(taken), used) ==
              (left != 0 ? Next::more : Next::receive));
        taken += used;
        const auto all = answers(negotiation.take_output());
        REQUIRE_FALSE(all.empty());
        for (const OptionAnswer& each : all) CHECK(each.option == all.front().option);
    }
    CHECK(taken == input.size());
}

TEST_CASE("LIST during changes has each export that is present throughout exactly once") {
    PlainExportDirectory changing(many_exports(30));
    std::vector<ExportInfo>& now = changing.exports;
    Negotiation negotiation(changing);
    Bytes output;
    std::size_t used = 0;
    const Bytes input = after_flags({option(opt::list)});
    REQUIRE(negotiation.feed(input, used) == Next::more);
    output = negotiation.take_output();
    const std::size_t listed = answers(output).size();
    REQUIRE(listed < 10);
    // Removes the first and the twentieth export, inserts new ones at the front, and changes the
    // order.
    now.erase(now.begin() + 20);
    now.erase(now.begin());
    now.insert(now.begin(), {ExportInfo{.name = "new"}, {.name = "newer"}});
    std::reverse(now.begin(), now.end());
    CHECK(feed_all(negotiation, {}, used, output) == Next::receive);
    const auto all = answers(output);
    REQUIRE(all.size() == 30);
    std::size_t at = 0;
    for (std::size_t i = 0; i != 30; ++i) {
        if (i != 20) CHECK(name_in(all[at++]) == "export " + std::to_string(i));
    }
    CHECK(all[at].type == ack);
}

TEST_CASE("a stop within a LIST ends it with an error") {
    const PlainExportDirectory directory(many_exports(30));
    Negotiation negotiation(directory);
    std::size_t used = 0;
    REQUIRE(negotiation.feed(after_flags({option(opt::list)}), used) == Next::more);
    negotiation.take_output();
    negotiation.shut_down();
    Bytes output;
    CHECK(feed_all(negotiation, option(opt::abort), used, output) == Next::close);
    const auto all = answers(output);
    REQUIRE(all.size() == 2);
    CHECK(all[0].option == opt::list);
    CHECK(all[0].type == shutdown);
    CHECK(all[1].option == opt::abort);
}

TEST_CASE("an empty directory") {
    const PlainExportDirectory none(std::vector<ExportInfo>{});
    const Outcome outcome =
        run_all_ways(none, after_flags({option(opt::list), option(opt::go, info_data("")),
                                        option(opt::list_meta, meta_data("", {}))}));
    const auto all = answers(outcome.output);
    REQUIRE(all.size() == 3);
    CHECK(all[0].type == ack);
    CHECK(all[1].type == unknown);
    CHECK(all[2].type == unknown);
    CHECK(run(none, after_flags({option(opt::export_name)})).next == Next::close);
}

TEST_CASE("the request of a client is described as text for the log") {
    constexpr const char* not_offered = ", which is not offered; offered: 'disk', 'ro', 'coarse'";
    const Bytes unknown_go = option(opt::go, info_data("nope"));
    const Bytes bad_name = joined({be32(2), hex("61ff"), be16(0)});
    const std::string longest(max_string, 'x');
    struct Row {
        const char* name;
        Bytes input;
        std::optional<std::string> export_name;
        std::string refusal;
        std::string words;
    };
    const Row rows[] = {
        {"nothing", {}, {}, "", ""},
        {"no export", option(opt::structured), {}, "", ""},
        {"an unknown option", option(opt::starttls), {}, "", ""},
        {"LIST", option(opt::list), {}, "", "listed the exports"},
        {"INFO", option(opt::info, info_data("disk")), "disk", "", "asked about export 'disk'"},
        {"INFO of the default", option(opt::info, info_data("")), "", "",
         "asked about the default export"},
        {"INFO of two",
         joined({option(opt::info, info_data("disk")), option(opt::info, info_data("ro"))}), "ro",
         "", "asked about export 'ro'"},
        {"GO", unknown_go, "nope", "unknown export",
         "asked for export 'nope'" + std::string(not_offered)},
        {"GO, and LIST to see why", joined({unknown_go, option(opt::list)}), "nope",
         "unknown export", "asked for export 'nope'" + std::string(not_offered)},
        {"GO, and another one that succeeds",
         joined({unknown_go, option(opt::info, info_data("ro"))}), "ro", "",
         "asked about export 'ro'"},
        {"GO to a hostile name", option(opt::go, info_data("a\nb'\x1b[31m")), "a\nb'\x1b[31m",
         "unknown export", "asked for export 'a?b??[31m'" + std::string(not_offered)},
        {"GO to a long name", option(opt::go, info_data(longest)), longest, "unknown export",
         "asked for export '" + std::string(64, 'x') + "...'" + not_offered},
        {"GO to a name that is not UTF-8", option(opt::go, bad_name), "a\xff",
         "malformed export information request",
         "asked for export 'a?', refused: malformed export information request"},
        {"GO without a name",
         option(opt::go),
         {},
         "malformed export information request",
         "asked for an export, refused: malformed export information request"},
        {"GO with too much data",
         option(opt::go, Bytes(max_option_data + 1)),
         {},
         "option data too long",
         "asked for an export, refused: option data too long"},
        {"EXPORT_NAME", option(opt::export_name, text_bytes("a\nb")), "a\nb", "unknown export",
         "asked for export 'a?b'" + std::string(not_offered)},
        {"EXPORT_NAME, not UTF-8", option(opt::export_name, hex("ff")), "\xff", "not a valid name",
         "asked for export '?', refused: not a valid name"},
        {"LIST_META_CONTEXT", option(opt::list_meta, meta_data("nope", {})), "nope",
         "unknown export", "asked for export 'nope'" + std::string(not_offered)},
        {"SET_META_CONTEXT", option(opt::set_meta, meta_data("disk", {})), "disk",
         "SET_META_CONTEXT needs structured replies or extended headers",
         "asked for export 'disk', refused: SET_META_CONTEXT needs structured replies or extended "
         "headers"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.name);
        const Asked asked = run_all_ways(exports, after_flags({row.input})).asked;
        CHECK(asked.export_name == row.export_name);
        CHECK(asked.refusal == row.refusal);
        CHECK(asked.words == row.words);
    }
    const Asked stopping =
        run_all_ways(exports, after_flags({option(opt::go, info_data("disk"))}), true).asked;
    CHECK(stopping.export_name == "disk");
    CHECK(stopping.words == "asked for export 'disk', refused: the server is shutting down");
}

TEST_CASE("the text names the first exports of a long list") {
    constexpr std::pair<std::size_t, const char*> rows[] = {
        {0, "nothing"},
        {1, "'0'"},
        {4, "'0', '1', '2', '3'"},
        {5, "'0', '1', '2', '3' and 1 more"},
        {100, "'0', '1', '2', '3' and 96 more"},
    };
    for (const auto& [count, words] : rows) {
        std::vector<ExportInfo> many;
        for (std::size_t i = 0; i != count; ++i) many.push_back({.name = std::to_string(i)});
        const PlainExportDirectory directory(many);
        const Asked asked = run(directory, after_flags({option(opt::go, info_data("x"))})).asked;
        CHECK(asked.words ==
              "asked for export 'x', which is not offered; offered: " + std::string(words));
    }
}

}  // namespace
}  // namespace gpunbd::protocol::test
