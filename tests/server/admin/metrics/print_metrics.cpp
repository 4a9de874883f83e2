// Prints the metrics of a sample status, for tests with programs that parse metrics.
//   print_metrics prometheus|openmetrics [SECONDS]
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/admin/metrics/metrics.hpp"
#include "tests/server/admin/metrics/sample_status.hpp"

int main(int argc, char** argv) {
    const std::string_view form = argc > 1 ? argv[1] : "";
    if (form != "prometheus" && form != "openmetrics") return 2;
    const std::uint64_t seconds = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
    const std::string text = gpunbd::server::metrics_text(
        gpunbd::server::test::sample_status(seconds), form == "openmetrics");
    return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
}
