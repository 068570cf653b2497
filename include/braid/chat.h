// Chat templates: conversations to text.
#pragma once

#include "chat/template.h"
