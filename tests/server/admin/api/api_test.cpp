// Requests and responses without a socket. An error is one line.
#include "server/admin/api/api.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>

#include "tests/server/admin/fake_server.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::admin::test {
namespace {

namespace json = boost::json;

struct Rig {
    FakeServer server;
    History history;
    EventLog events;
    Api api{server, history, events};

    // Waits for the outcome if the response depends on an operation.
    static Response whole(Response response) {
        if (!response.operation) return response;
        std::optional<Outcome> outcome;
        response.operation(Completion([&](Outcome its) { outcome = std::move(its); }));
        REQUIRE(outcome);
        return Api::response_to(*outcome);
    }
    Response get(const std::string& target) { return whole(api.respond({.target = target})); }
    Response post(const std::string& path, const std::string& body,
                  const std::string& type = "application/json") {
        Request request{.method = Method::post, .target = "/api/v1" + path};
        request.content_type = type;
        request.body = body;
        return whole(api.respond(request));
    }
    // Of the export "a".
    Response post_rates(const std::string& rates) {
        return post("/rates", R"({"export":"a","rates":)" + rates + "}");
    }
};

TEST_CASE("api: responses of all GET paths") {
    Rig rig;
    const json::value status = json::parse(rig.get("/api/v1/status").body);
    CHECK(status.at("exports").at(0).at("name") == "<script>");
    CHECK(status.at("exports").at(0).at("used") == 11);
    CHECK(status.at("exports").at(0).at("allocated") == 22);
    CHECK(status.at("connections") == 1);
    const json::value connections = json::parse(rig.get("/api/v1/connections").body);
    CHECK(connections.at(0).at("peer") == "un\xef\xbf\xbdix");
    CHECK(connections.at(0).at("export").is_null());
    CHECK(json::parse(rig.get("/api/v1/devices").body).at(0).at("others_compute").is_null());
    const json::value map = json::parse(rig.get("/api/v1/map?export=%3Cscript%3E").body);
    CHECK(map.at("used") == json::array{100, 2, 7, 1});
    CHECK(map.at("read") == json::array{});
    CHECK(map.at("written") == json::array{0, 1, 1, 2});
    CHECK(rig.server.calls().back() == "map 0 18446744073709551615 1024");
    CHECK(rig.get("/api/v1/map?export=%3cscript%3e&offset=2&length=18446744073709551615&cells=3")
              .status == 200);
    CHECK(rig.server.calls().back() == "map 2 18446744073709551613 3");
    const json::value pages = json::parse(rig.get("/api/v1/pages?export=<script>").body);
    CHECK(pages.at("runs").at(1).at("device").is_null());
    CHECK(pages.at("next") == 8);
    CHECK(json::parse(rig.get("/api/v1/history?export=<script>").body).at("reads") ==
          json::array{});
    CHECK(json::parse(rig.get("/api/v1/trends").body).at("exports") == json::array{});
    CHECK(rig.get("/api/v1/access").body == R"({"steering":true,"why_not":null})");
    Request guarded{.target = "/api/v1/access"};
    guarded.read_only_reason = "no protection";
    CHECK(rig.api.respond(guarded).body == R"({"steering":false,"why_not":"no protection"})");
    CHECK(rig.get("/api/v1/events").body == "[]");
    CHECK(rig.get("/api/v1/kept").body ==
          R"({"kept":[{"name":"<script>","size":64,"used":8,"devices":"host","made":1000,)"
          R"("instance":"abc","state":"in use"},)"
          "{\"name\":\"un\xef\xbf\xbdknown\",\"size\":null,\"used\":null,\"devices\":null,"
          R"("made":null,"instance":null,"state":"its checksum is wrong"}]})");
    CHECK(rig.get("/api/v1/stream").stream);
}

TEST_CASE("api: metrics in the requested format") {
    Rig rig;
    CHECK(rig.get("/metrics").content_type == "text/plain; version=0.0.4; charset=utf-8");
    const Response open = rig.api.respond(
        {.target = "/metrics", .accept = "application/openmetrics-text;version=1.0.0,*/*;q=0.1"});
    CHECK(open.content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8");
    CHECK(open.body.ends_with("# EOF\n"));
}

TEST_CASE("api: the page runs only its own scripts") {
    Rig rig;
    const Response page = rig.get("/");
    CHECK(page.status == 200);
    CHECK(page.content_type == "text/html; charset=utf-8");
    CHECK(page.body.starts_with("<!doctype html>"));
    REQUIRE(page.headers.size() == 1);
    CHECK(page.headers[0].name == "Content-Security-Policy");
    CHECK(page.headers[0].value.starts_with("default-src 'none'; "));
    CHECK(rig.get("/index.html").status == 200);
    CHECK(rig.get("/../index.html").status == 404);
    CHECK(rig.get("//").status == 404);
}

TEST_CASE("api: invalid queries") {
    Rig rig;
    const std::tuple<const char*, unsigned, const char*> rows[] = {
        {"", 404, "unknown path ''"},
        {"/api/v1", 404, "unknown path '/api/v1'"},
        {"/api/v1/status/", 404, "unknown path"},
        {"/API/v1/status", 404, "unknown path"},
        {"http://localhost/api/v1/status", 404, "unknown path"},
        {"/api/v1/status?a=1", 400, "'a': unknown parameter"},
        {"/metrics?a=1", 400, "unknown parameter"},
        {"/api/v1/map", 400, "export: is missing"},
        {"/api/v1/map?export", 400, "has no value"},
        {"/api/v1/map?export=b", 404, "unknown export 'b'"},
        {"/api/v1/map?export=b&export=c", 400, "given twice"},
        {"/api/v1/map?export=%zz", 400, "hexadecimal"},
        {"/api/v1/map?export=%3", 400, "hexadecimal"},
        {"/api/v1/map?export=b&offset=-1", 400, "offset: '-1' is not an integer"},
        {"/api/v1/map?export=b&offset=", 400, "offset: '' is not an integer"},
        {"/api/v1/map?export=b&offset=1x", 400, "offset: '1x' is not an integer"},
        {"/api/v1/map?export=b&length=18446744073709551616", 400, "length: "},
        {"/api/v1/map?export=b&cells=0", 400, "cells: '0' is not an integer from 1 to 16384"},
        {"/api/v1/map?export=b&cells=16385", 400, "cells: "},
        {"/api/v1/map?export=b&colour=red", 400, "'colour': unknown parameter; known parameters: "},
        {"/api/v1/pages?export=b", 404, "unknown export"},
        {"/api/v1/history?export=b", 404, "unknown export"},
        {"/api/v1/history", 400, "export: is missing"},
        {"/api/v1/history?export=b&seconds=0", 400,
         "seconds: '0' is not an integer from 1 to 3600"},
        {"/api/v1/history?export=b&seconds=3601", 400, "seconds: "},
        {"/api/v1/events?after=x", 400, "after: "},
        {"/api/v1/rates", 405, "POST"},
    };
    for (const auto& [target, status, says] : rows) {
        CAPTURE(target);
        const Response answer = rig.get(target);
        CHECK(answer.status == status);
        const json::value body = json::parse(answer.body);
        const std::string error(std::string_view(body.at("error").as_string()));
        CAPTURE(error);
        CHECK(contains(error, says));
        CHECK(error.find('\n') == std::string::npos);
        CHECK(body.as_object().size() == 1);
    }
    const Response other = rig.api.respond({.method = Method::other, .target = "/api/v1/status"});
    CHECK(other.status == 405);
    CHECK(other.headers.at(0).value == "GET, HEAD");
    CHECK(rig.get("/api/v1/rates").headers.at(0).value == "POST");
    CHECK(rig.api.respond({.method = Method::post, .target = "/"}).status == 405);
    CHECK(rig.server.calls().empty());
}

TEST_CASE("api: responses of all POST paths") {
    Rig rig;
    const Response ended = rig.post("/connections/end", R"({"id":7})");
    CHECK(ended.status == 200);
    CHECK(ended.body == R"({"done":"ended"})");
    CHECK(ended.change == "ended");
    CHECK(rig.post("/connections/end", R"({"id":18446744073709551615})").status == 404);
    CHECK(rig.server.calls().back() == "end 18446744073709551615");
    CHECK(
        rig.post("/log-level", R"({"level":"debug"})", "Application/JSON; charset=utf-8").status ==
        200);
    const std::pair<const char*, const char*> rows[] = {
        {R"({"bytes_per_second":65536,"iops":null,"burst":1.0})", "rates a 65536 0 1"},
        {R"({"bytes_per_second":"10M","iops":"5","burst":"0s"})", "rates a 10485760 5 0"},
        {R"({"bytes_per_second":1099511627776,"iops":1000000000,"burst":3600})",
         "rates a 1099511627776 1000000000 3600"},
        {R"({"bytes_per_second":null,"iops":null,"burst":1})", "rates a 0 0 1"}};
    for (const auto& [rates, call] : rows) {
        CAPTURE(rates);
        const Response answer = rig.post_rates(rates);
        CAPTURE(answer.body);
        CHECK(answer.status == 200);
        CHECK(rig.server.calls().back() == call);
    }
    CHECK(rig.post("/kept/drop", R"({"name":"old"})").status == 200);
    CHECK(rig.post("/kept/drop", R"({"name":""})").status == 404);
    CHECK(rig.server.calls().back() == "drop ");
    const Response not_done = rig.post("/read-only", R"({"export":"a","read_only":true})");
    CHECK(not_done.status == 409);
    CHECK(not_done.body == R"({"error":"it is so already"})");
    CHECK(not_done.change.empty());
}

TEST_CASE("api: exports are created with the keys of the configuration, and removed") {
    Rig rig;
    CHECK(rig.post("/exports/create",
                   R"({"export":{"name":"new","size":"1M","access":[{"uid":0}]},"persist":true})")
              .body == R"({"done":"created"})");
    CHECK(rig.server.calls().back() == "create new 1048576 persist");
    CHECK(rig.post("/exports/remove", R"({"name":"old","force":true})").status == 200);
    CHECK(rig.server.calls().back() == "remove old force");
    CHECK(rig.post("/exports/remove", R"({"name":"old","force":false,"keep_contents":true})")
              .status == 200);
    CHECK(rig.server.calls().back() == "remove old keep");
    CHECK(rig.post("/exports/remove", R"({"name":"none","force":false})").status == 404);
    CHECK(rig.post("/exports/rename", R"({"name":"old","new_name":"a/b"})").body ==
          R"({"done":"renamed"})");
    CHECK(rig.server.calls().back() == "rename old a/b");
    CHECK(rig.post("/exports/flush", R"({"name":"old"})").status == 200);
    CHECK(rig.server.calls().back() == "flush old");
    CHECK(rig.post("/exports/evict", R"({"name":"old","size":"4K"})").status == 200);
    CHECK(rig.server.calls().back() == "evict old 4096");
}

TEST_CASE("api: only the server's own user can name files of the server") {
    Rig rig;
    for (const std::string keys : {R"("size":"1M","restore":"/etc/shadow")",
                                   R"("size":"1M","save":{"path":"/a","at":"stop"})",
                                   R"("origin":{"file":"/etc/shadow","mode":"read-only"})",
                                   R"("origin":{"device":"/dev/sda","mode":"read-only"})",
                                   R"("origin":{"nbd":"nbd://host/a","mode":"read-only"})"}) {
        CAPTURE(keys);
        const std::string body = R"({"export":{"name":"fast",)" + keys + R"(},"persist":false})";
        CHECK(rig.post("/exports/create", body).status == 403);
    }
    CHECK(rig.server.calls().empty());
}

TEST_CASE("api: memory is reclaimed, and the result says what moved where") {
    Rig rig;
    const Response done = rig.post("/reclaim", R"({"device":"cuda:0","bytes":"64K","seconds":60})");
    CHECK(done.status == 200);
    CHECK(done.body ==
          R"({"reclaimed":[{"device":"cuda:0","wanted":64,"released":48,"freed":8,"dropped":4,)"
          R"("moved":[{"device":"host","bytes":40}],"seconds":5E-1,"why_not":"full",)"
          R"("claim":3,"limit":16}]})");
    CHECK(rig.server.calls().back() == "reclaim cuda:0 65536 60");
    CHECK(rig.post("/reclaim", R"({"device":null,"bytes":null,"seconds":null})").status == 200);
    CHECK(rig.server.calls().back() == "reclaim  0 0");
    CHECK(rig.post("/reclaim/end", R"({"device":null,"claim":7})").status == 200);
    CHECK(rig.server.calls().back() == "end reclaim  7");
    CHECK(rig.post("/reclaim/end", R"({"device":"host","claim":null})").status == 404);
}

TEST_CASE("api: a completion is used once, and reports the end of the server if it is dropped") {
    std::vector<Outcome> outcomes;
    const auto sink = [&](Outcome its) { outcomes.push_back(std::move(its)); };
    {
        const Completion completion(sink);
        const Completion copy = completion;  // NOLINT(performance-unnecessary-copy-initialization)
        completion(Done{"first"});
        copy(Done{"second"});
    }
    REQUIRE(outcomes.size() == 1);
    CHECK(std::get<Done>(outcomes[0]).text == "first");
    { const Completion completion(sink); }
    REQUIRE(outcomes.size() == 2);
    CHECK(contains(std::get<NotDone>(outcomes[1]).why, "the server is ending"));
}

void check_refused(const Response& answer, const char* says) {
    CAPTURE(answer.body);
    CHECK(answer.status == 400);
    CHECK(contains(answer.body, says));
}

TEST_CASE("api: invalid bodies change nothing") {
    Rig rig;
    const std::tuple<const char*, const char*, const char*> rows[] = {
        {"/connections/end", "", "not JSON"},
        {"/connections/end", "{\"id\":7", "not JSON"},
        {"/connections/end", "[7]", "not a JSON object"},
        {"/connections/end", "{}", "id: is missing"},
        {"/connections/end", R"({"id":-1})", "id: is not a non-negative integer"},
        {"/connections/end", R"({"id":7.5})", "id: is not a non-negative integer"},
        {"/connections/end", R"({"id":"7"})", "id: is not a non-negative integer"},
        {"/connections/end", R"({"id":7,"now":true})", "'now': unknown member"},
        {"/connections/end", "{\"id\":7,\"\xff\":1}", "not JSON"},
        {"/log-level", R"({"level":"loud"})", "level: 'loud' is none of trace"},
        {"/log-level", R"({"level":1})", "level: '1' is none of"},
        {"/log-level", R"({"level":null})", "level: is null"},
        {"/log-level", R"({"level":["info"]})", "level: is not an integer or a string"},
        {"/rates", R"({"export":"a"})", "rates: is missing"},
        {"/rates", R"({"export":"a","rates":1})", "rates: is not a JSON object"},
        {"/kept/drop", "{}", "name: is missing"},
        {"/kept/drop", R"({"name":null})", "name: is not a string"},
        {"/exports/create", R"({"export":{"name":"a","size":1.5},"persist":false})",
         "export.size: '1.5E0'"},
        {"/exports/create", R"({"export":{"name":"a","size":"1M","sise":1},"persist":false})",
         "export.sise: unknown key; did you mean size?"},
        {"/exports/create", R"({"export":{"name":"a"},"persist":false})",
         "export.size: is missing"},
        {"/exports/create", R"({"export":{"size":"1M"},"persist":false})",
         "export.name: is missing"},
        {"/exports/create", R"({"export":{"name":"a","size":"1M"}})", "persist: is missing"},
        {"/exports/restore",
         R"({"file":"/f","export":{"name":"a","clone_of":"b"},"persist":false})",
         "export.clone_of: excludes the file"},
        {"/exports/restore",
         R"({"file":"/f","export":{"name":"a","clone_per_client":{"of":"b"}},"persist":false})",
         "export.clone_per_client: excludes the file"},
        {"/exports/restore",
         R"({"file":"/f","export":{"name":"a","restore":"/g"},"persist":false})",
         "export.restore: excludes the file"},
        {"/exports/restore", R"({"file":"/f\u0000g","export":{"name":"a"},"persist":false})",
         "g' holds a control character"},
        {"/exports/save", R"({"name":"a","file":"/f\u0000g","compress":null,"threads":null})",
         "g' holds a control character"},
        {"/exports/remove", R"({"name":"a","force":1})", "force: is not true or false"},
        {"/exports/snapshot", R"({"source":"","name":"b"})", "source: is empty"},
        {"/exports/evict", R"({"name":"a","size":"5%"})", "is not a number of bytes"},
        {"/exports/rename", R"({"name":"a","new_name":""})", "new_name: is empty"},
        {"/exports/rename", R"({"name":"a","new_name":"b\u0000"})", "holds a control character"},
        {"/reclaim", R"({"device":"cuda:0","bytes":1})", "seconds: is missing"},
        {"/reclaim", R"({"device":"cuda:0","bytes":0,"seconds":null})",
         "bytes: '0' is out of range"},
        {"/reclaim", R"({"device":7,"bytes":1,"seconds":null})", "device: is not a string"},
        {"/reclaim/end", R"({"device":null,"claim":null,"bytes":1})",
         "known members: claim, device"},
        {"/reclaim/end", R"({"device":null,"claim":0})", "claim: '0' is out of range"},
        {"/read-only", R"({"export":"a","read_only":"yes"})", "read_only: is not true or false"},
        {"/read-only", R"({"export":"a","read_only":true,"x":1})", "'x': unknown member"},
    };
    for (const auto& [path, body, says] : rows) {
        CAPTURE(body);
        check_refused(rig.post(path, body), says);
    }
    const std::pair<const char*, const char*> wrong_rates[] = {
        {R"({"bytes_per_second":65535,"iops":1,"burst":1})",
         "rates.bytes_per_second: '65535' is out of range; write 64K to 1T"},
        {R"({"bytes_per_second":1099511627777,"iops":1,"burst":1})",
         "rates.bytes_per_second: '1099511627777' is out of range; write 64K to 1T"},
        {R"({"bytes_per_second":"10MB","iops":1,"burst":1})",
         "rates.bytes_per_second: '10MB' has a decimal unit"},
        {R"({"bytes_per_second":65536.5,"iops":1,"burst":1})",
         "rates.bytes_per_second: is not an integer or a string"},
        {R"({"bytes_per_second":true,"iops":1,"burst":1})",
         "rates.bytes_per_second: is not an integer or a string"},
        {R"({"bytes_per_second":null,"iops":0,"burst":1})", "rates.iops: "},
        {R"({"bytes_per_second":null,"iops":1000000001,"burst":1})", "rates.iops: "},
        {R"({"bytes_per_second":null,"iops":-1,"burst":1})", "rates.iops: "},
        {R"({"bytes_per_second":65536,"burst":1})", "rates.iops: is missing"},
        {R"({"bytes_per_second":null,"iops":1,"burst":-1})", "rates.burst: "},
        {R"({"bytes_per_second":null,"iops":1,"burst":1e18})", "rates.burst: "},
        {R"({"bytes_per_second":null,"iops":1,"burst":3601})", "rates.burst: "},
        {R"({"bytes_per_second":null,"iops":1,"burst":null})", "rates.burst: is null"},
        {R"({"bytes_per_second":65536,"iops":1,"burst":1,"x":1})", "'rates.x': unknown member"},
    };
    for (const auto& [rates, says] : wrong_rates) {
        CAPTURE(rates);
        check_refused(rig.post_rates(rates), says);
    }
    for (const char* type :
         {"", "text/plain", "application/jsonx", "application/x-www-form-urlencoded"}) {
        CAPTURE(type);
        CHECK(rig.post("/connections/end", R"({"id":7})", type).status == 415);
    }
    CHECK(rig.post("/connections/end", std::string(10'000, '[')).status == 400);
    CHECK(rig.server.calls().empty());
}

}  // namespace
}  // namespace gpunbd::server::admin::test
