// Limits of the process that protection needs out of its way.
#pragma once

namespace gpunbd::server {

// Lifts the limit as far as it goes. True: there is none any more.
bool lift_limit(int resource);

}  // namespace gpunbd::server
