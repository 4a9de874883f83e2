// Requests and their answers, without a socket: what is wrong with them is said in one line.
#include "server/admin/api/api.hpp"

#include <doctest/doctest.h>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <string>

#include "fake_server.hpp"

namespace gpunbd::server::admin::test {
namespace {

namespace json = boost::json;

struct Rig {
    FakeServer server;
    History history;
    EventLog events;
    Api api{server, history, events};

    Answer get(const std::string& target) { return api.answer({.target = target}); }
    Answer post(const std::string& path, const std::string& body,
                const std::string& type = "application/json") {
        Request request{.method = Method::post, .target = "/api/v1" + path};
        request.content_type = type;
        request.body = body;
        return api.answer(request);
    }
};

TEST_CASE("api: what is told") {
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
    CHECK(rig.get("/api/v1/events").body == "[]");
    CHECK(rig.get("/api/v1/stream").stream);
}

TEST_CASE("api: metrics in the form that is asked for") {
    Rig rig;
    CHECK(rig.get("/metrics").type == "text/plain; version=0.0.4; charset=utf-8");
    const Answer open = rig.api.answer(
        {.target = "/metrics", .accept = "application/openmetrics-text;version=1.0.0,*/*;q=0.1"});
    CHECK(open.type == "application/openmetrics-text; version=1.0.0; charset=utf-8");
    CHECK(open.body.ends_with("# EOF\n"));
}

TEST_CASE("api: the page, which runs nothing that is not its own") {
    Rig rig;
    const Answer page = rig.get("/");
    CHECK(page.status == 200);
    CHECK(page.type == "text/html; charset=utf-8");
    CHECK(page.body.starts_with("<!doctype html>"));
    REQUIRE(page.fields.size() == 1);
    CHECK(page.fields[0].name == "Content-Security-Policy");
    CHECK(page.fields[0].value.starts_with("default-src 'none'; "));
    CHECK(rig.get("/index.html").status == 200);
    CHECK(rig.get("/../index.html").status == 404);
    CHECK(rig.get("//").status == 404);
}

TEST_CASE("api: questions that are wrong") {
    Rig rig;
    struct Row {
        const char* target;
        unsigned status;
        const char* says;
    };
    const Row rows[] = {
        {"", 404, "there is no ''"},
        {"/api/v1", 404, "there is no '/api/v1'"},
        {"/api/v1/status/", 404, "there is no"},
        {"/API/v1/status", 404, "there is no"},
        {"http://localhost/api/v1/status", 404, "there is no"},
        {"/api/v1/status?a=1", 400, "'a': nothing here is called so"},
        {"/metrics?a=1", 400, "nothing here is called so"},
        {"/api/v1/map", 400, "export: is missing"},
        {"/api/v1/map?export", 400, "has no value"},
        {"/api/v1/map?export=b", 404, "no export 'b'"},
        {"/api/v1/map?export=b&export=c", 400, "given twice"},
        {"/api/v1/map?export=%zz", 400, "hexadecimal"},
        {"/api/v1/map?export=%3", 400, "hexadecimal"},
        {"/api/v1/map?export=b&offset=-1", 400, "offset: '-1' is not an integer"},
        {"/api/v1/map?export=b&offset=", 400, "offset: '' is not an integer"},
        {"/api/v1/map?export=b&offset=1x", 400, "offset: '1x' is not an integer"},
        {"/api/v1/map?export=b&length=18446744073709551616", 400, "length: "},
        {"/api/v1/map?export=b&cells=0", 400, "cells: '0' is not an integer from 1 to 16384"},
        {"/api/v1/map?export=b&cells=16385", 400, "cells: "},
        {"/api/v1/map?export=b&colour=red", 400, "'colour': nothing here is called so; there is"},
        {"/api/v1/pages?export=b", 404, "no export"},
        {"/api/v1/history?export=b", 404, "no export"},
        {"/api/v1/history", 400, "export: is missing"},
        {"/api/v1/events?after=x", 400, "after: "},
        {"/api/v1/rates", 405, "POST"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.target);
        const Answer answer = rig.get(row.target);
        CHECK(answer.status == row.status);
        const json::value body = json::parse(answer.body);
        const std::string error(std::string_view(body.at("error").as_string()));
        CAPTURE(error);
        CHECK(error.find(row.says) != std::string::npos);
        CHECK(error.find('\n') == std::string::npos);
        CHECK(body.as_object().size() == 1);
    }
    const Answer other = rig.api.answer({.method = Method::other, .target = "/api/v1/status"});
    CHECK(other.status == 405);
    CHECK(other.fields.at(0).value == "GET, HEAD");
    CHECK(rig.get("/api/v1/rates").fields.at(0).value == "POST");
    CHECK(rig.api.answer({.method = Method::post, .target = "/"}).status == 405);
    CHECK(rig.server.calls().empty());
}

TEST_CASE("api: what is done") {
    Rig rig;
    const Answer ended = rig.post("/connections/end", R"({"id":7})");
    CHECK(ended.status == 200);
    CHECK(ended.body == R"({"done":"ended"})");
    CHECK(ended.done == "ended");
    CHECK(rig.post("/connections/end", R"({"id":18446744073709551615})").status == 404);
    CHECK(rig.server.calls().back() == "end 18446744073709551615");
    CHECK(
        rig.post("/log-level", R"({"level":"debug"})", "Application/JSON; charset=utf-8").status ==
        200);
    CHECK(rig.post("/rates",
                   R"({"export":"a","rates":{"bytes_per_second":5,"iops":null,"burst":1.5}})")
              .status == 200);
    CHECK(rig.server.calls().back() == "rates a 5 0");
    const Answer not_done = rig.post("/read-only", R"({"export":"a","read_only":true})");
    CHECK(not_done.status == 409);
    CHECK(not_done.body == R"({"error":"it is so already"})");
    CHECK(not_done.done.empty());
}

TEST_CASE("api: bodies that are wrong change nothing") {
    Rig rig;
    struct Row {
        const char* path;
        const char* body;
        const char* says;
    };
    const Row rows[] = {
        {"/connections/end", "", "no JSON"},
        {"/connections/end", "{\"id\":7", "no JSON"},
        {"/connections/end", "[7]", "no JSON object"},
        {"/connections/end", "{}", "id: is missing"},
        {"/connections/end", R"({"id":-1})", "id: is no integer from 0 on"},
        {"/connections/end", R"({"id":7.5})", "id: is no integer"},
        {"/connections/end", R"({"id":"7"})", "id: is no integer"},
        {"/connections/end", R"({"id":7,"now":true})", "'now': there is no such member"},
        {"/connections/end", "{\"id\":7,\"\xff\":1}", "no JSON"},
        {"/log-level", R"({"level":"loud"})", "level: 'loud' is none of trace"},
        {"/log-level", R"({"level":1})", "level: is no string"},
        {"/rates", R"({"export":"a"})", "rates: is missing"},
        {"/rates", R"({"export":"a","rates":1})", "rates: is no JSON object"},
        {"/rates", R"({"export":"a","rates":{"bytes_per_second":0,"iops":1,"burst":1}})",
         "rates.bytes_per_second: is no integer from 1 on"},
        {"/rates", R"({"export":"a","rates":{"bytes_per_second":1,"burst":1}})",
         "rates.iops: is missing"},
        {"/rates", R"({"export":"a","rates":{"bytes_per_second":1,"iops":1,"burst":-1}})",
         "rates.burst: is no number"},
        {"/rates", R"({"export":"a","rates":{"bytes_per_second":1,"iops":1,"burst":1,"x":1}})",
         "'rates.x': there is no such member"},
        {"/read-only", R"({"export":"a","read_only":"yes"})", "read_only: is neither"},
        {"/read-only", R"({"export":"a","read_only":true,"x":1})", "'x': there is no such member"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.body);
        const Answer answer = rig.post(row.path, row.body);
        CHECK(answer.status == 400);
        CAPTURE(answer.body);
        CHECK(answer.body.find(row.says) != std::string::npos);
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
